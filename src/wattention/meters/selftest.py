"""What this machine's meters are worth, found by measuring loads whose size is known.

::

    own cost . counters' steps . rest | load 1, 3, 2, 4, 1 | memory | square wave | estimate

The loads are known multiples of one amount of work. A meter that is linear in work, that agrees with itself on the two
equal loads, whose counter agrees with the integral of the sampled power, and that sees the square wave as it was made,
is sound for comparisons. Nothing here shows absolute accuracy: that takes a power meter outside the machine, and the
sensor's class (sensor_class.py) stands in for it.

Everything comes in through a :class:`Rig`, so a simulated device with known faults can be tested the same way. What a
machine does not have is *not measurable*, with the reason, and whatever it does have is tested all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wattention.meters import selftest_checks as judge
from wattention.meters.base import MeterError
from wattention.meters.selftest_rig import LOADS, Check, LoadWindow, Rig
from wattention.meters.square_wave import make_square_wave

SETTLE_S = 2.0
"""Rest after the square wave, so that a sensor which lags shows its last pulse too."""
MEMORY_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """All checks of one device."""

    device: str
    checks: tuple[Check, ...]
    flags: tuple[str, ...]
    spent_s: float
    simulated: bool

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema": 1,
            "device": self.device,
            "simulated": self.simulated,
            "spent_s": self.spent_s,
            "flags": list(self.flags),
            "checks": [check.to_json() for check in self.checks],
        }


def calibrate(rig: Rig, *, at_least_s: float = 0.1) -> float:
    """Return units of work a second; the first units warm the device up."""
    units = 1
    rig.work(units)
    while True:
        start_ns = rig.clock.monotonic_ns()
        rig.work(units)
        took_s = (rig.clock.monotonic_ns() - start_ns) / 1e9
        if took_s >= at_least_s:
            return units / took_s
        units *= 2


def run_selftest(rig: Rig, *, seconds: float | None = None) -> SelfTest:
    """Test the meters of a rig.

    Args:
        seconds: about how long it may take; as long as the slowest counter needs when None. Counters that need longer
            windows than fit are not measurable then, and say how long they need.
    """
    start_ns, wall_ns = rig.clock.monotonic_ns(), rig.clock.wall_ns()
    cost = rig.panel.measure_own_cost()
    rate = calibrate(rig)
    load_s = rig.load_s(seconds)
    with rig.panel.window() as resting:
        rig.rest(load_s)
    loads = [_load(rig, max(1, round(rate * load_s)) * times) for times in LOADS]
    checks = [judge.check_own_cost(cost), *judge.check_seconds(rig, loads), *judge.check_counters(rig, resting, loads)]
    checks.append(_check_wave(rig, rate))
    checks.extend([judge.check_sampler_cost(rig, loads), *_check_memory(rig), judge.check_estimate(rig, loads)])
    spent_s = (rig.clock.monotonic_ns() - start_ns) / 1e9
    checks.insert(0, judge.check_clock(rig, spent_s, (rig.clock.wall_ns() - wall_ns) / 1e9))
    flags = [flag for window in (resting, *(load.window for load in loads)) for flag in window.flags]
    return SelfTest(
        device=rig.device,
        checks=tuple(checks),
        flags=tuple(dict.fromkeys(f"{flag.kind}: {flag.message}" for flag in flags)),
        spent_s=spent_s,
        simulated=rig.panel.simulated,
    )


def _load(rig: Rig, units: int) -> LoadWindow:
    with rig.panel.window() as window:
        rig.work(units)
    return LoadWindow(units=units, window=window)


def _check_wave(rig: Rig, rate: float) -> Check:
    sampler = rig.sampler
    if sampler is None:
        return judge.no_sampler(rig, "square wave")
    before_ns = rig.clock.monotonic_ns()
    pulses = make_square_wave(lambda seconds: rig.work(max(1, round(rate * seconds))), rig.rest, rig.clock.monotonic_ns)
    rig.rest(SETTLE_S)
    try:
        samples = sampler.source.since(before_ns)
    except MeterError as error:
        return Check(name="square wave", instrument="sampled power", verdict="faulty", finding=str(error))
    return judge.check_wave(samples, pulses)


def _check_memory(rig: Rig) -> list[Check]:
    if rig.touch is None:
        return []
    with rig.panel.window() as window:
        rig.touch(MEMORY_BYTES)
    return [judge.check_memory(window, MEMORY_BYTES)]
