"""One attention layer over sequence lengths: its cost at each, and from which length it beats the others.

A time is compared within blocks, as everywhere; peaks of live tensors do not differ between blocks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattention.analysis.blocks import fit_blocks
from wattention.analysis.cells import by_block
from wattention.analysis.crossover import Crossover, find_crossover
from wattention.analysis.energy import energy_by_length, ratios, summarise
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord

TIME, PEAK = "layer_time_s", "layer_peak_tensor_bytes"
NO_ENERGY = Absent("no energy of this length was recorded")
RIVALS = ("baseline", "flash")


@dataclass(frozen=True, kw_only=True)
class LengthPoint:
    """One mechanism's layer at one length: forward and backward time, peak memory, and energy gross and net of idle."""

    time_s: Reading
    peak_bytes: Reading
    energy_j: Reading = NO_ENERGY
    net_energy_j: Reading = NO_ENERGY


Lengths = Mapping[str, Mapping[int, LengthPoint]]
Crossovers = Mapping[str, Mapping[tuple[str, str], Crossover]]


def measure_lengths(records: Sequence[CellRecord], labels: Sequence[str]) -> dict[str, dict[int, LengthPoint]]:
    """Return every mechanism's points, the median over blocks, by label and length."""
    cells = by_block(records, "lengths")
    out = {label: _points(cells.get(label, {}).values()) for label in labels}
    for net in (False, True):
        name = "net_energy_j" if net else "energy_j"
        for length, found in energy_by_length(cells, net=net).items():
            for label, reading in summarise(found).items():
                if label in out and length in out[label]:
                    out[label][length] = replace(out[label][length], **{name: reading})
    return out


def find_crossovers(records: Sequence[CellRecord], lengths: Lengths) -> dict[str, dict[tuple[str, str], Crossover]]:
    """Return by mechanism, then by ``(rival, "time" or "memory")``, from which length on it is cheaper."""
    out: dict[str, dict[tuple[str, str], Crossover]] = {label: {} for label in lengths}
    for rival in RIVALS:
        if not lengths.get(rival):
            continue
        ties = _undecided(records, rival)
        energy_ties = _undecided_energy(records, rival)
        for label in lengths:
            if label == rival:
                continue
            ours, theirs = lengths[label], lengths[rival]
            out[label][rival, "time"] = find_crossover(
                _numbers(ours, "time_s"), _numbers(theirs, "time_s"), undecided=ties.get(label, ())
            )
            out[label][rival, "memory"] = find_crossover(_numbers(ours, "peak_bytes"), _numbers(theirs, "peak_bytes"))
            joules = _numbers(ours, "energy_j"), _numbers(theirs, "energy_j")
            if all(joules):
                out[label][rival, "energy"] = find_crossover(*joules, undecided=energy_ties.get(label, ()))
    return out


def _undecided(records: Sequence[CellRecord], rival: str) -> dict[str, list[int]]:
    """Lengths at which a mechanism's time is not proved to differ from the rival's."""
    cells = by_block(records, "lengths")
    out: dict[str, list[int]] = {}
    for length in _lengths_of(record for blocks in cells.values() for record in blocks.values()):
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


def _undecided_energy(records: Sequence[CellRecord], rival: str) -> dict[str, list[int]]:
    """Lengths at which a mechanism's energy is not proved to differ from the rival's."""
    out: dict[str, list[int]] = {}
    for length, found in energy_by_length(by_block(records, "lengths")).items():
        for label, ratio in ratios(found, rival).items():
            if ratio.tie:
                out.setdefault(label, []).append(length)
    return out


def _points(records: Iterable[CellRecord]) -> dict[int, LengthPoint]:
    kept = list(records)
    return {
        length: LengthPoint(time_s=_median(kept, length, TIME), peak_bytes=_median(kept, length, PEAK))
        for length in _lengths_of(kept)
    }


def _lengths_of(records: Iterable[CellRecord]) -> list[int]:
    """The lengths that these cells tried; other phases of theirs, such as idle windows, have words for names."""
    return sorted({int(name) for record in records for name in record.phases if name.isdigit()})


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
