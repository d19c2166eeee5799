"""What one step of a model runs, as plain data: operators with their sizes, and how much memory its tensors take.

A trace is made by running the model's own code on tensors that have sizes but no contents (``lab/traces/``); what a
machine needs for it is a matter of :mod:`wattention.analysis.predict`. One layer is traced and stands for all, so a
trace of a deep model is as small as that of a shallow one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

Part = Literal["embedding", "norm", "attention", "mlp", "residual", "head", "optimiser"]
PARTS: tuple[Part, ...] = ("embedding", "norm", "attention", "mlp", "residual", "head", "optimiser")
Stage = Literal["forward", "backward", "update"]
Kind = Literal["matmul", "attention", "attention-backward", "view", "memory"]
"""What bounds an operator: products, a fused attention kernel, nothing at all, or the bytes it touches."""
MemoryKind = Literal["parameters", "gradients", "optimiser", "attention", "logits", "activations"]
MEMORY_KINDS: tuple[MemoryKind, ...] = ("parameters", "gradients", "optimiser", "attention", "logits", "activations")
"""``attention`` is what attention layers keep or use; ``logits`` those, their loss and its gradient."""


class Operator(NamedTuple):
    """One operator, or ``times`` equal ones.

    Args:
        name: torch's name of it, e.g. ``addmm``; a mechanism known by its cost record alone is ``cost-record``.
        dims: matmul: (batch, m, n, k). Attention: (batch, heads, kv heads, queries, keys, key dim, value dim, window
            or 0, causal 0 or 1). Else the shape of the largest tensor.
        flop: floating-point operations of its products, masked pairs of whole tiles included.
    """

    name: str
    kind: Kind
    dtype: str
    dims: tuple[int, ...]
    flop: int
    read_bytes: int
    written_bytes: int
    part: Part
    stage: Stage
    times: int = 1

    @property
    def moved_bytes(self) -> int:
        """Bytes of its operands and results, each once."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """Tensors alive at the highest point of one phase of a step, bytes by kind.

    ``layer_bytes`` is what one more layer adds at this point.
    """

    phase: str
    bytes_by_kind: Mapping[MemoryKind, int]
    layer_bytes: Mapping[MemoryKind, int]

    def at(self, layers: int) -> dict[MemoryKind, int]:
        """Bytes by kind with so many further layers."""
        return {kind: self.bytes_by_kind[kind] + layers * self.layer_bytes[kind] for kind in MEMORY_KINDS}


class MemoryLine(NamedTuple):
    """Bytes alive at one point of a step, all layers, against the batch."""

    fixed_bytes: float
    sequence_bytes: float
    """Of every sequence of the batch."""


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """One training step, one prefill or one decoding step.

    Args:
        operators: equal ones joined, all layers included.
        memory: the highest point of each phase; the step's peak is the highest of them.
        further_layers: layers that the memory points leave out.
        growth: of a training step, lines of which the highest is the peak of any batch; scratch that has an upper limit
            counts with it.
        cache_bytes: what decoding keeps, all layers (0 in training).
        marks: what is not as it would really run, e.g. an attention layer known by its cost record alone.
    """

    operators: tuple[Operator, ...]
    memory: tuple[MemoryPoint, ...]
    further_layers: int
    growth: tuple[MemoryLine, ...] = ()
    cache_bytes: int = 0
    marks: tuple[str, ...] = field(default=())

    @cached_property
    def at_work(self) -> tuple[Operator, ...]:
        """The operators that do something: all but views."""
        return tuple([op for op in self.operators if op.kind != "view"])

    @property
    def flop(self) -> int:
        """Floating-point operations of all products."""
        return sum(op.flop * op.times for op in self.at_work)

    @property
    def launches(self) -> int:
        """Operators started, views included."""
        return sum(op.times for op in self.operators)

    def peak(self) -> tuple[str, dict[MemoryKind, int]]:
        """The phase with the most bytes alive, and those bytes by kind."""
        points = ((point.phase, point.at(self.further_layers)) for point in self.memory)
        return max(points, key=lambda named: sum(named[1].values()))
