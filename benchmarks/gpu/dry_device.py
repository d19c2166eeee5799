"""A simulated device that lives on real time, so that the GPU script can be driven where there is no GPU.

It draws its idle power while this process waits and its busy power while it computes, and its time runs
:data:`SPEED` times faster than the clock on the wall, so that windows which take seconds on a GPU take milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from wattention.meters.simulated import DeviceTraits, SimulatedDevice
from wattention.meters.window import Panel, panels_from

SPEED = 5000.0


class DryDevice(SimulatedDevice):
    """A :class:`SimulatedDevice` whose time passes by itself."""

    def __init__(self, traits: DeviceTraits, *, seed: int = 0) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()
        super().__init__(traits, seed=seed)

    def _catch_up(self) -> None:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        passed_s, worked_s = wall_s - self._wall_s, cpu_s - self._cpu_s
        self._wall_s, self._cpu_s = wall_s, cpu_s
        share = min(1.0, worked_s / passed_s) if passed_s > 0 else 0.0
        self.advance(passed_s * SPEED, self.traits.idle_w + share * (self.traits.busy_w - self.traits.idle_w))

    def monotonic_ns(self) -> int:
        """Read the clock, which has run meanwhile."""
        self._catch_up()
        return super().monotonic_ns()

    def read_counter_j(self) -> float:
        """Read the counter, which has run meanwhile."""
        self._catch_up()
        return super().read_counter_j()


@contextmanager
def dry_meters(seed: int = 0) -> Iterator[DryDevice]:
    """Let every panel that the body opens read one dry device; its records are stamped simulated."""
    device = DryDevice(DeviceTraits(), seed=seed)

    def opener(name: str, names: Sequence[str] | None) -> Panel:
        return device.open_panel(sampled=False)

    with panels_from(opener):
        yield device
