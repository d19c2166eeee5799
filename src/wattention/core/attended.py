"""Which pairs of tokens a mechanism's inner attention forms, and how wide they are: what data movement follows from.

It is the part between the projections, of one layer and one sequence. The laboratory writes it into the record; the
analysis makes a problem of the two-level memory model out of it, without knowing the mechanism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class AttendedPairs:
    """Causal attention of ``heads`` query heads over ``kv_heads`` key/value heads.

    Args:
        form: softmax over pairs, or a running sum over keys (linear attention), which forms no pairs.
        heads: query heads.
        kv_heads: key/value heads.
        key_dim: features of a query and of a key, D_k.
        value_dim: features of a value, D_v.
        kernel_value_dim: features of a value as the kernel is given them, where it needs them padded; None: D_v.
        window: keys that a query sees, itself among them; None for all earlier ones.
        rounds: how often a sequence is attended, each time in another order (hash rounds).
        data_dependent: the window is the most a query can see; how many it sees depends on the data.
    """

    form: Literal["softmax", "linear"] = "softmax"
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    kernel_value_dim: int | None = None
    window: int | None = None
    rounds: int = 1
    data_dependent: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def attended_from_json(data: Mapping[str, Any]) -> AttendedPairs:
    """Rebuild what :meth:`AttendedPairs.to_json` wrote."""
    return AttendedPairs(**data)
