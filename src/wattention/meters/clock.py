"""The clock: intervals come from CLOCK_MONOTONIC, and two other clocks watch over it.

CLOCK_MONOTONIC (``time.perf_counter_ns`` on Linux and macOS) is not set by anyone and stands still while the machine
sleeps; CLOCK_BOOTTIME runs on through sleep; the wall clock is set by people and by NTP. Hence::

    suspended  = d(boottime) - d(monotonic)      the machine slept inside the window: its joules and seconds disagree
    wall step  = d(wall) - d(boottime)           somebody set the clock, or a virtual machine was paused

The interval itself is never corrected: a window with sleep in it is flagged, not mended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol

from wattention.core.quantities import Absent, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, Sample

SUSPEND_LIMIT_S = 0.010
"""Sleep inside a window above this is flagged; the two clocks tick together to microseconds otherwise."""
WALL_STEP_LIMIT_S = 0.050
"""A wall clock that moved this much more than the interval was set; NTP slews by at most 500 parts in a million."""
WALL_SLEW = 1e-3


class Clock(Protocol):
    """What a window needs of a clock; a scripted one stands in for it in tests."""

    def monotonic_ns(self) -> int:
        """Read the clock that times intervals."""

    def wall_ns(self) -> int:
        """Read UTC in nanoseconds since 1970."""


class SystemClock:
    """The machine's clock."""

    def monotonic_ns(self) -> int:
        """Read CLOCK_MONOTONIC."""
        return time.perf_counter_ns()

    def wall_ns(self) -> int:
        """Read CLOCK_REALTIME."""
        return time.time_ns()


def read_clocks() -> Sample:
    """Read all three clocks within a microsecond of each other."""
    boot = None
    if sys.platform == "linux":
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return {"monotonic_ns": time.perf_counter_ns(), "boottime_ns": boot, "wall_ns": time.time_ns()}


class ClockWatch:
    """The opened watch.

    Args:
        read: reads the three clocks; the machine's own unless given.
    """

    def __init__(self, read: Callable[[], Sample] = read_clocks) -> None:
        self.facts: Facts = {"boottime": hasattr(time, "CLOCK_BOOTTIME")}
        self._read = read

    def arm(self) -> None:
        """Nothing to reset."""

    def start(self) -> Sample:
        """Read the clocks."""
        return self._read()

    stop = start

    def close(self) -> None:
        """Nothing to give back."""


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    flags: list[Flag] = []
    readings: dict[str, Reading] = {}
    monotonic_s = (after["monotonic_ns"] - before["monotonic_ns"]) / 1e9
    reference_s, reference = monotonic_s, "CLOCK_MONOTONIC"
    if before["boottime_ns"] is None or after["boottime_ns"] is None:
        readings["suspended_s"] = Absent("this system has no CLOCK_BOOTTIME, so sleep cannot be told from a clock step")
    else:
        reference_s, reference = (after["boottime_ns"] - before["boottime_ns"]) / 1e9, "CLOCK_BOOTTIME"
        suspended_s = reference_s - monotonic_s
        readings["suspended_s"] = measured(suspended_s, "s", "CLOCK_BOOTTIME minus CLOCK_MONOTONIC")
        if suspended_s > SUSPEND_LIMIT_S:
            flags.append(Flag(kind="suspended", message=f"the machine slept for {suspended_s:.3g} s inside the window"))
    step_s = (after["wall_ns"] - before["wall_ns"]) / 1e9 - reference_s
    readings["wall_clock_step_s"] = measured(step_s, "s", f"CLOCK_REALTIME minus {reference}")
    if abs(step_s) > max(WALL_STEP_LIMIT_S, WALL_SLEW * reference_s):
        flags.append(
            Flag(
                kind="clock_step",
                message=f"the wall clock moved by {step_s:+.3g} s against {reference}: it was set, or the machine "
                "was paused; the interval comes from the monotonic clock and is not affected by a set clock",
            )
        )
    return Interpretation(readings=readings, flags=tuple(flags))


METER = Meter(
    name="clock",
    title="clock watch: sleep and clock steps",
    readings=("suspended_s", "wall_clock_step_s"),
    unit="s",
    kind="counter",
    origin="measured",
    available=lambda device: None,
    open=lambda device: ClockWatch(),
    interpret=_interpret,
    closeness=90,
)
