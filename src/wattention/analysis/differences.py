"""Each mechanism against the reference within each block: the raw pairs behind every ratio and interval."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.cells import by_block
from wattention.analysis.summary import MEASURES, measure_value
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Phase


def block_ratios(records: Sequence[CellRecord], key: str, reference: str) -> dict[str, dict[int, Quantity]]:
    """Return by mechanism and block its quantity over the reference's in the same block.

    Args:
        key: of a measure, e.g. ``step_s``.
        reference: label of the mechanism to divide by; a block without it has no ratios.
    """
    measure = next(m for m in MEASURES if m.key == key)
    values = {
        label: {
            block: reading
            for block, record in blocks.items()
            if isinstance(reading := measure_value(measure, record.phases.get(measure.phase, Phase())), Quantity)
            and reading.value > 0
        }
        for label, blocks in by_block(records, "train").items()
    }
    theirs = values.get(reference, {})
    return {
        label: {
            block: Quantity(
                value=ours[block].value / theirs[block].value,
                unit="ratio",
                origin=ours[block].origin,
                source=f"{key} over that of {reference} in the same block; {ours[block].source}",
            )
            for block in sorted(ours.keys() & theirs.keys())
        }
        for label, ours in values.items()
        if label != reference
    }
