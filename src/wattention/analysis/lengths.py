"""One attention layer over sequence lengths: its cost at each, and from which length it beats the others.

A time is compared within blocks, as everywhere; peaks of live tensors do not differ between blocks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattention.analysis.blocks import fit_blocks
from wattention.analysis.cells import by_block
from wattention.analysis.crossover import Crossover, find_crossover
from wattention.core.quantities import Quantity, Reading
from wattention.core.records import CellRecord

TIME, PEAK = "layer_time_s", "layer_peak_tensor_bytes"
RIVALS = ("baseline", "flash")


@dataclass(frozen=True, kw_only=True)
class LengthPoint:
    """One mechanism's layer at one length: forward and backward time, and peak memory."""

    time_s: Reading
    peak_bytes: Reading


Lengths = Mapping[str, Mapping[int, LengthPoint]]
Crossovers = Mapping[str, Mapping[tuple[str, str], Crossover]]


def measure_lengths(records: Sequence[CellRecord], labels: Sequence[str]) -> dict[str, dict[int, LengthPoint]]:
    """Return every mechanism's points, the median over blocks, by label and length."""
    cells = by_block(records, "lengths")
    return {label: _points(cells.get(label, {}).values()) for label in labels}


def find_crossovers(records: Sequence[CellRecord], lengths: Lengths) -> dict[str, dict[tuple[str, str], Crossover]]:
    """Return by mechanism, then by ``(rival, "time" or "memory")``, from which length on it is cheaper."""
    out: dict[str, dict[tuple[str, str], Crossover]] = {label: {} for label in lengths}
    for rival in RIVALS:
        if not lengths.get(rival):
            continue
        ties = _undecided(records, rival)
        for label in lengths:
            if label == rival:
                continue
            ours, theirs = lengths[label], lengths[rival]
            out[label][rival, "time"] = find_crossover(
                _numbers(ours, "time_s"), _numbers(theirs, "time_s"), undecided=ties.get(label, ())
            )
            out[label][rival, "memory"] = find_crossover(_numbers(ours, "peak_bytes"), _numbers(theirs, "peak_bytes"))
    return out


def _undecided(records: Sequence[CellRecord], rival: str) -> dict[str, list[int]]:
    """Lengths at which a mechanism's time is not proved to differ from the rival's."""
    cells = by_block(records, "lengths")
    lengths = sorted({int(name) for blocks in cells.values() for record in blocks.values() for name in record.phases})
    out: dict[str, list[int]] = {}
    for length in lengths:
        values = {
            label: {
                block: reading.value
                for block, record in blocks.items()
                if isinstance(reading := record.phases[str(length)].readings[TIME], Quantity)
            }
            for label, blocks in cells.items()
        }
        if values.get(rival):
            for label, ratio in fit_blocks(values).ratios_to(rival).items():
                if ratio.tie:
                    out.setdefault(label, []).append(length)
    return out


def _points(records: Iterable[CellRecord]) -> dict[int, LengthPoint]:
    kept = list(records)
    lengths = sorted({int(name) for record in kept for name in record.phases})
    return {
        length: LengthPoint(time_s=_median(kept, length, TIME), peak_bytes=_median(kept, length, PEAK))
        for length in lengths
    }


def _median(records: Sequence[CellRecord], length: int, name: str) -> Reading:
    readings = [record.phases[str(length)].readings[name] for record in records]
    numbers = [q for q in readings if isinstance(q, Quantity)]
    if not numbers:
        return readings[0]
    middle = statistics.median(q.value for q in numbers)
    return Quantity(value=middle, unit=numbers[0].unit, origin=numbers[0].origin, source=numbers[0].source)


def _numbers(points: Mapping[int, LengthPoint], attribute: str) -> dict[int, float]:
    readings = {length: getattr(point, attribute) for length, point in points.items()}
    return {length: q.value for length, q in readings.items() if isinstance(q, Quantity)}
