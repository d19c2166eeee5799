"""A device that does not exist and whose true energy is known: the harness is tested against it, and taken for a drive.

Time passes only when work, rest or a slow read makes it pass. Power is constant between two instants, so the true
energy between any two is exact. A counter and a power sensor look at that truth the way real ones do::

    counter   gain x unit x energy up to its last move; moves come every ``step_s``, jittered, with a random phase
    sensor    gain x unit x mean power over ``averaging_s`` up to its last renewal, ``lag_s`` late

Every window over it is stamped simulated.
"""

from __future__ import annotations

import bisect
import itertools
import random
from dataclasses import dataclass

from wattention.meters.base import METERS, OpenedMeters, OpenMeter
from wattention.meters.energy import Counters
from wattention.meters.power_process import PowerSample
from wattention.meters.sampled_power import Sampler
from wattention.meters.selftest_rig import Rig
from wattention.meters.window import Panel
from wattention.meters.zeus_layer import Domain, Found

START_NS = 1_000_000_000_000
EPOCH_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True, kw_only=True)
class DeviceTraits:
    """What a simulated device is like.

    Args:
        idle_w, busy_w: true power at rest and at work.
        gain: factor of both instruments on the truth, as one board has it.
        step_s, step_jitter: mean time between moves of the counter, and its relative jitter (uniform).
        counter_unit: factor by which the counter's unit is wrong.
        sensor_period_s: time between renewals of the power sensor.
        averaging_s: how far one value of the sensor looks back.
        lag_s: how late the sensor's values come.
        sensor_contrast: share of the rise above idle that the sensor sees.
        read_s: what one read of the counter takes.
        work_s: what one unit of work takes.
    """

    idle_w: float = 70.0
    busy_w: float = 300.0
    gain: float = 1.0
    step_s: float = 0.1
    step_jitter: float = 0.1
    counter_unit: float = 1.0
    sensor_period_s: float = 0.1
    averaging_s: float = 0.025
    lag_s: float = 0.0
    sensor_contrast: float = 1.0
    read_s: float = 1e-3
    work_s: float = 1e-3


class SimulatedDevice:
    """One device and its clock; also the source of its power samples.

    Args:
        traits: what it is like.
        seed: draws phases and jitter.
    """

    sensor = "simulated power sensor"

    def __init__(self, traits: DeviceTraits, *, seed: int = 0) -> None:
        self.traits = traits
        self._random = random.Random(seed)
        self._times = [-10.0]  # the device idled for ten seconds before anybody looked
        self._joules = [0.0]
        self._sampler_phase = self._random.uniform(0, 0.05)
        self._sensor_phase = self._random.uniform(0, traits.sensor_period_s)
        self._moved_s = -self._random.uniform(0, traits.step_s)
        self.advance(10.0, traits.idle_w)

    # --- truth ---

    @property
    def now_s(self) -> float:
        """Seconds since the device was made."""
        return self._times[-1]

    def advance(self, seconds: float, watts: float) -> None:
        """Let time pass at one power."""
        self._times.append(self.now_s + seconds)
        self._joules.append(self._joules[-1] + seconds * watts)

    def work(self, units: int) -> None:
        """Do units of work."""
        self.advance(units * self.traits.work_s, self.traits.busy_w)

    def rest(self, seconds: float) -> None:
        """Do nothing."""
        self.advance(seconds, self.traits.idle_w)

    def true_energy_j(self, start_s: float, end_s: float) -> float:
        """Return the joules really used between two instants."""
        return self._until(end_s) - self._until(start_s)

    def _until(self, at_s: float) -> float:
        right = min(max(1, bisect.bisect_left(self._times, at_s)), len(self._times) - 1)
        (t0, t1), (j0, j1) = self._times[right - 1 : right + 1], self._joules[right - 1 : right + 1]
        return j1 if t1 == t0 else j0 + (j1 - j0) * (at_s - t0) / (t1 - t0)

    # --- clock ---

    def monotonic_ns(self) -> int:
        """Read the clock, which takes a microsecond."""
        self.advance(1e-6, self.traits.idle_w)
        return START_NS + round(self.now_s * 1e9)

    def wall_ns(self) -> int:
        """Read UTC."""
        return EPOCH_NS + round(self.now_s * 1e9)

    # --- instruments ---

    def read_counter_j(self) -> float:
        """Read the energy counter."""
        traits = self.traits
        self.advance(traits.read_s, traits.idle_w)
        while True:
            step_s = traits.step_s * (1 + traits.step_jitter * self._random.uniform(-1, 1))
            if self._moved_s + step_s > self.now_s:
                break
            self._moved_s += step_s
        return traits.gain * traits.counter_unit * self._until(self._moved_s)

    def sensor_w(self, at_s: float) -> float:
        """Return what the power sensor shows at an instant."""
        traits = self.traits
        seen_s = at_s - traits.lag_s
        renewals = (seen_s - self._sensor_phase) // traits.sensor_period_s
        renewed_s = self._sensor_phase + renewals * traits.sensor_period_s
        mean_w = self.true_energy_j(renewed_s - traits.averaging_s, renewed_s) / traits.averaging_s
        return traits.gain * (traits.idle_w + traits.sensor_contrast * (mean_w - traits.idle_w))

    def since(self, start_ns: int) -> list[PowerSample]:
        """Return samples every 50 ms from the last one before ``start_ns`` up to one taken now."""
        start_s, period_s = (start_ns - START_NS) / 1e9, 0.05
        first = (start_s - self._sampler_phase) // period_s
        times = (self._sampler_phase + (first + i) * period_s for i in itertools.count())
        taken = itertools.takewhile(lambda at_s: at_s < self.now_s, times)
        return [(START_NS + round(at_s * 1e9), self.sensor_w(at_s)) for at_s in (*taken, self.now_s)]

    def cpu_s(self) -> float:
        """Return the CPU seconds its sampler has used: 0.1 % of a core."""
        return 1e-3 * self.now_s

    def close(self) -> None:
        """Nothing to give back."""

    def open_rig(self, *, sampled: bool = True) -> Rig:
        """Return a rig for the self-test of its meters."""
        return Rig(
            device="simulated", panel=self.open_panel(sampled=sampled), work=self.work, rest=self.rest, clock=self
        )

    def open_panel(self, *, sampled: bool = True) -> Panel:
        """Return a panel over its counter and, unless told not to, its sampled power."""
        domain = Domain(
            name="gpu0",
            device="simulated device",
            counter="simulated energy counter",
            read_j=self.read_counter_j,
            sensor_class="nvml",
        )
        counters = Counters(Found(domains=(domain,), missing={}), clock=self)
        opened = [OpenMeter(meter=METERS.load("energy"), instrument=counters)]
        if sampled:
            sampler = Sampler(self, domain="gpu0", sensor_class="nvml_instant", period_s=0.05, clock=self)
            opened.insert(0, OpenMeter(meter=METERS.load("sampled_power"), instrument=sampler))
        return Panel(OpenedMeters(opened=tuple(opened)), clock=self, simulated=True)
