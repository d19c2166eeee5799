"""Recall accuracy against length, with binomial intervals (Wilson 1927, "Probable inference", JASA 22).

Counts are pooled over blocks. The interval takes the questions for independent; several belong to one sequence, so it
is somewhat too narrow, and it says nothing of other seeds of training than the run's.
"""

from __future__ import annotations

from collections.abc import Sequence

from scipy.special import ndtri

from wattention.analysis.blocks import CONFIDENCE
from wattention.analysis.cells import by_block
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Phase


def wilson_interval(right: float, asked: float) -> tuple[float, float]:
    """Return the interval of a share at :data:`CONFIDENCE`."""
    z = float(ndtri((1 + CONFIDENCE) / 2))
    share, weight = right / asked, z * z / asked
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * (share * (1 - share) / asked + weight / (4 * asked)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def recall_by_length(records: Sequence[CellRecord]) -> dict[str, dict[int, Quantity]]:
    """Return by mechanism and length the share of questions answered rightly."""
    out: dict[str, dict[int, Quantity]] = {}
    for label, blocks in by_block(records, "train").items():
        counts: dict[int, tuple[float, float]] = {}
        for record in blocks.values():
            samples = record.phases.get("recall", Phase()).samples
            series = (samples.get(name, ()) for name in ("length_tokens", "right", "queries"))
            for length, right, asked in zip(*series, strict=True):
                before = counts.get(int(length), (0.0, 0.0))
                counts[int(length)] = before[0] + right, before[1] + asked
        if counts:
            out[label] = {length: _share(*counts[length], len(blocks)) for length in sorted(counts)}
    return out


def _share(right: float, asked: float, blocks: int) -> Quantity:
    low, high = wilson_interval(right, asked)
    source = f"{right:.0f} of {asked:.0f} held-out questions right, {blocks} blocks; Wilson's interval"
    return Quantity(value=right / asked, unit="accuracy", origin="measured", source=source, low=low, high=high)
