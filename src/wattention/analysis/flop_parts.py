"""What a trained token's FLOPs are spent on: attention layers, MLPs, the head, and work beyond the model's.

Attention is what the model's FLOPs leave after the closed forms of MLPs and head (core/specs.py). Where the records
also tell hardware FLOPs, their excess over the model's is masked pairs that are computed anyway and scores formed again
in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattention.analysis.cells import by_block
from wattention.core.quantities import Quantity, predicted
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class FlopParts:
    """FLOPs of one trained token, forward and backward; ``beyond`` is None where the records do not tell."""

    attention: Quantity
    mlp: Quantity
    head: Quantity
    beyond: Quantity | None


def flop_parts(spec: RunSpec, records: Sequence[CellRecord]) -> dict[str, FlopParts]:
    """Return the parts of every mechanism that trained."""
    out: dict[str, FlopParts] = {}
    for label, blocks in by_block(records, "train").items():
        model = spec.model_of(label)
        mlp = 3.0 * model.layers * 4 * model.width * model.mlp_width
        head = 3.0 * 2 * model.width * model.vocabulary
        readings = next(iter(blocks.values())).phases.get("train", Phase()).readings
        total, hardware = readings.get("flop_per_token"), readings.get("hardware_flop_per_token")
        if not isinstance(total, Quantity) or total.value < mlp + head:
            continue
        out[label] = FlopParts(
            attention=_flop(total.value - mlp - head, f"model FLOPs less MLPs and head; {total.source}"),
            mlp=_flop(mlp, "closed form: 12 L C x MLP width, forward and backward"),
            head=_flop(head, "closed form: 6 C V, forward and backward"),
            beyond=_flop(hardware.value - total.value, f"hardware less model FLOPs; {hardware.source}")
            if isinstance(hardware, Quantity)
            else None,
        )
    return out


def _flop(value: float, source: str) -> Quantity:
    return predicted(value, "flop/token", source)
