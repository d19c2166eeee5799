"""What a self-test works with and answers: a rig of meters and loads, windows over known work, checks with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wattention.core.quantities import Reading
from wattention.meters.clock import Clock
from wattention.meters.energy import needed_window_s
from wattention.meters.sampled_power import Sampler
from wattention.meters.square_wave import PERIOD_S, PERIODS
from wattention.meters.window import MeasuringWindow, Panel

Verdict = Literal["sound", "doubtful", "faulty", "not measurable"]
LOADS = (1, 3, 2, 4, 1)
"""Multiples of the least load; the first and the last are equal and make the A/A test."""
MARGIN = 1.1
SHORT_LOAD_S = 0.25
"""Least load where no counter asks for a longer one: well above the ticks of CPU time."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question to one instrument, and the answer."""

    name: str
    instrument: str
    verdict: Verdict
    finding: str
    readings: Mapping[str, Reading] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "instrument": self.instrument,
            "verdict": self.verdict,
            "finding": self.finding,
            "readings": {name: reading.to_json() for name, reading in self.readings.items()},
        }


@dataclass(frozen=True, kw_only=True)
class Rig:
    """What a self-test works with.

    Args:
        panel: the opened meters.
        work: does so many units of work, all equal, and returns when they are done.
        rest: leaves the device alone for so many seconds.
        clock: the clock of the panel and of the power samples.
        touch: writes to so many fresh bytes and lets them go.
        cores: cores whose idle power an estimate counts.
    """

    device: str
    panel: Panel
    work: Callable[[int], object]
    rest: Callable[[float], object]
    clock: Clock
    touch: Callable[[int], object] | None = None
    cores: int = 1

    @property
    def counters(self) -> dict[str, Any] | None:
        """Facts of the energy counters, or None where there are none."""
        return next((one.instrument.facts for one in self.panel.meters.opened if one.meter.name == "energy"), None)

    @property
    def sampler(self) -> Sampler | None:
        """The power sampler, or None where there is none."""
        found = (one.instrument for one in self.panel.meters.opened)
        return next((one for one in found if isinstance(one, Sampler)), None)

    def load_s(self, seconds: float | None) -> float:
        """Return the seconds of the least load: what the counters need, or what fits into the time allowed."""
        needed = SHORT_LOAD_S if self.counters is None else needed_window_s(self.counters) * MARGIN
        waves_s = 0.0 if self.sampler is None else PERIOD_S * PERIODS
        return needed if seconds is None else max(0.02, (seconds - waves_s) / (sum(LOADS) + 1))

    def needed_s(self) -> float:
        """Return the seconds that a whole self-test takes."""
        waves_s = 0.0 if self.sampler is None else PERIOD_S * PERIODS
        return self.load_s(None) * (sum(LOADS) + 1) + waves_s


@dataclass(frozen=True, kw_only=True)
class LoadWindow:
    """A window over a known amount of work."""

    units: int
    window: MeasuringWindow
