"""Power of training, and which of power and time makes a difference in energy.

::

    E / token = P x t / token        ln(E ratio) = ln(P ratio) + ln(T ratio), exactly, window by window

The saving 1 - r of an energy ratio r is shared out in proportion to the logarithms, so that the two parts add up to it
whatever their signs: from time -L ln(T ratio), from power -L ln(P ratio), with L = (r - 1) / ln r, the logarithmic mean
of 1 and r (Ang, Energy Policy 33 (2005) 867, the logarithmic mean Divisia index).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wattention.analysis.energy import TRAIN, EnergyRatio, Joules, Trained, WindowEnergy, ratios, window_energy
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


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of the energy saved, as a fraction of the reference's energy; negative where it costs."""

    value: float
    low: float | None
    high: float | None

    @property
    def decided(self) -> bool:
        """Its interval lies on one side of nothing."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True, kw_only=True)
class PowerTimeSplit:
    """One mechanism's energy per token against the reference's: the ratios, and the saving in its two parts."""

    energy: EnergyRatio
    time: EnergyRatio
    power: EnergyRatio
    saved: Share
    from_time: Share
    from_power: Share
    estimated: bool


def split_energy(cells: Trained, reference: str, *, net: bool = False) -> dict[str, PowerTimeSplit]:
    """Return the split of every mechanism whose energy and the reference's are known; gross, or net of idle power."""
    energy: dict[str, dict[int, Joules | Absent]] = {}
    power: dict[str, dict[int, Joules | Absent]] = {}
    time: dict[str, dict[int, Joules | Absent]] = {}
    for label, blocks in cells.items():
        for block, record in blocks.items():
            found = window_energy(record, TRAIN)
            joules = found if isinstance(found, Absent) else found.net if net else found.gross
            if isinstance(joules, Joules) and isinstance(found, WindowEnergy) and isinstance(found.time_s, Quantity):
                seconds = found.time_s.value
                each = Joules(
                    value=seconds / found.made, unit="s/token", origin=joules.origin, source="the energy window"
                )
                energy.setdefault(label, {})[block] = joules.over(found.made, "J/token")
                power.setdefault(label, {})[block] = joules.over(seconds, "W")
                time.setdefault(label, {})[block] = each
    found_energy, found_time, found_power = (ratios(what, reference) for what in (energy, time, power))
    estimated = {label for label, j in energy.items() if any(_is_estimate(one) for one in j.values())}
    return {
        label: _split(ratio, found_time[label], found_power[label], estimated=bool({label, reference} & estimated))
        for label, ratio in found_energy.items()
    }


def _is_estimate(joules: Joules | Absent) -> bool:
    return isinstance(joules, Joules) and joules.origin == "estimated"


def _split(energy: EnergyRatio, time: EnergyRatio, power: EnergyRatio, *, estimated: bool) -> PowerTimeSplit:
    log = math.log(energy.value)
    weight = (energy.value - 1) / log if abs(log) > 1e-9 else 1.0
    return PowerTimeSplit(
        energy=energy,
        time=time,
        power=power,
        saved=Share(
            value=1 - energy.value,
            low=None if energy.high is None else 1 - energy.high,
            high=None if energy.low is None else 1 - energy.low,
        ),
        from_time=_share(time, weight),
        from_power=_share(power, weight),
        estimated=estimated,
    )


def _share(ratio: EnergyRatio, weight: float) -> Share:
    return Share(
        value=-weight * math.log(ratio.value),
        low=None if ratio.high is None else -weight * math.log(ratio.high),
        high=None if ratio.low is None else -weight * math.log(ratio.low),
    )
