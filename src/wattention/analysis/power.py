"""Mean power while training: the joules of the energy window over its seconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord, Phase


def mean_power(records: Sequence[CellRecord]) -> Reading:
    """Return the mean power of one mechanism's training cells in watts, the median over its blocks."""
    found = [_power(record.phases.get("energy", Phase())) for record in records]
    numbers = [q for q in found if isinstance(q, Quantity)]
    if not numbers:
        return next(iter(found), Absent("no training cell of this mechanism finished"))
    first = numbers[0]
    middle = statistics.median(q.value for q in numbers)
    return Quantity(value=middle, unit="W", origin=first.origin, source=first.source)


def _power(phase: Phase) -> Reading:
    energy, time = phase.readings.get("energy_j"), phase.readings.get("time_s")
    if not isinstance(energy, Quantity):
        return energy or Absent("the energy phase recorded no energy_j")
    if not isinstance(time, Quantity) or not time.value:
        return Absent("the energy phase recorded no time_s")
    source = f"joules over seconds of the energy window; {energy.source}"
    return Quantity(value=energy.value / time.value, unit="W", origin=energy.origin, source=source)
