"""What one attention layer costs, from closed forms; the conformance gate checks each against the running program.

A FLOP is one floating-point addition or multiplication, so a multiply-add is 2. Only matrix products are counted
(projections included); exponentials, softmax and other elementwise work are not, as is the field's custom.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Closed-form cost of one attention layer, for one shape and one configuration.

    Model FLOPs are what the mathematics asks for: masked pairs and recomputation are not counted.
    Hardware FLOPs are what the program executes: masked pairs it computes anyway and recomputation included.
    """

    parameters: int
    forward_flop: int
    backward_flop: int
    hardware_forward_flop: int
    hardware_backward_flop: int
    saved_bytes: int
    """Bytes kept from forward to backward, in the layer's dtype, beyond the parameters."""
    cache_bytes: int
    """Bytes that decoding keeps for ONE layer after ``tokens`` tokens of every sequence of the batch."""
