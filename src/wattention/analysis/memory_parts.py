"""What the peak of live tensors is made of. AdamW in float32 keeps 4 bytes a parameter and 8 bytes of two moments;
gradients take 4 bytes a parameter when the backward pass ends. What attention keeps from forward to backward is the
closed form of its cost record, which the gate checks. What is left of the measured peak is other activations and
scratch; gradients that do not exist yet at the moment of the peak are counted there too much, so the
rest is a little larger than shown.

Source: Kingma and Ba 2015 (two moments); the sizes are those of this project's trainer, which keeps parameters,
gradients and moments in float32 under autocast as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattention.analysis.cells import by_block
from wattention.core.quantities import Quantity, counted
from wattention.core.records import CellRecord, Phase

BYTES_PER_NUMBER = 4


@dataclass(frozen=True, kw_only=True)
class MemoryParts:
    """One mechanism's peak, in bytes."""

    parameters: Quantity
    gradients: Quantity
    optimiser: Quantity
    attention: Quantity
    rest: Quantity
    peak: Quantity


def memory_parts(records: Sequence[CellRecord]) -> dict[str, MemoryParts]:
    """Return the parts of every mechanism whose records tell its peak, its parameters and what attention keeps."""
    out: dict[str, MemoryParts] = {}
    for label, blocks in by_block(records, "train").items():
        record = next(iter(blocks.values()))
        peak = record.phases.get("memory", Phase()).readings.get("peak_tensor_bytes")
        parameters = record.facts.get("parameters")
        attention = record.phases.get("train", Phase()).readings.get("attention_saved_bytes")
        if not isinstance(peak, Quantity) or not isinstance(parameters, int) or not isinstance(attention, Quantity):
            continue
        spread = record.facts.get("parallel", {})
        holders = spread["ranks"] if spread.get("mode") == "fsdp" else 1  # the peak is one rank's, which holds a share
        size = float(BYTES_PER_NUMBER * parameters) / holders
        if peak.value < 4 * size + attention.value:
            continue  # other precisions than this split knows
        out[label] = MemoryParts(
            parameters=counted(size, "byte", "parameters x 4 bytes"),
            gradients=counted(size, "byte", "parameters x 4 bytes, all of them once the backward pass ends"),
            optimiser=counted(2 * size, "byte", "two moments of AdamW, 4 bytes each a parameter"),
            attention=attention,
            rest=Quantity(
                value=peak.value - 4 * size - attention.value,
                unit="byte",
                origin=peak.origin,
                source=f"the peak less the other parts; {peak.source}",
            ),
            peak=peak,
        )
    return out
