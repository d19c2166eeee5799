"""The measuring window: a strict, mirrored order of reads around the work, and nothing else inside.

::

    arm meters . synchronise . read counters . read clock | WORK | synchronise . read clock . read counters

The device is synchronised first on either side, so that queued work is inside or outside and never half of each. The
counters are read outside the two clock readings and in mirrored order, so that a slow counter costs the interval
nothing and each counter's own interval differs from the clock's by one reading time on either side. The window closes
in a ``finally``: a failing step leaves a failed window with its readings, not a half-open one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from wattention.core.quantities import Absent, Quantity, Reading, measured
from wattention.meters.base import (
    SIMULATED,
    Facts,
    Flag,
    Interval,
    MeterError,
    OpenedMeters,
    OpenMeter,
    Sample,
    device_type,
    is_cuda,
    open_meters,
)
from wattention.meters.clock import Clock, SystemClock

TIME_SOURCE = "CLOCK_MONOTONIC (time.perf_counter_ns)"


@dataclass(frozen=True, kw_only=True)
class RawWindow:
    """All that a window read, before any interpretation; JSON-able, enough to replay it."""

    wall_ns: int
    interval: Interval
    facts: Mapping[str, Facts]
    samples: Mapping[str, tuple[Sample | None, Sample | None]]
    failed: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "wall_ns": self.wall_ns,
            "start_ns": self.interval.start_ns,
            "end_ns": self.interval.end_ns,
            "facts": dict(self.facts),
            "samples": {name: list(pair) for name, pair in self.samples.items()},
            "failed": self.failed,
        }


def do_nothing() -> None:
    """Synchronise a device that needs no synchronising: the CPU."""


def synchronise_of(device: str) -> Callable[[], None]:
    """Return the function that waits until a device has done all work queued on it."""
    if is_cuda(device):
        import torch

        return lambda: torch.cuda.synchronize(device)
    if device_type(device) == "mps":
        import torch

        return torch.mps.synchronize
    return do_nothing


class MeasuringWindow:
    """Measure the body of a ``with`` statement.

    Args:
        meters: opened meters, the one nearest to the clock last.
        synchronise: waits until the device is idle; see :func:`synchronise_of`.
        clock: the clock that times the interval.
        absent: readings that could not be had at all, passed through to ``readings``.
        simulated: True for replayed meters; every source is then marked.

    After the body: ``readings`` (``time_s`` and those of every meter), ``flags``, ``failed`` (None, or the exception
    as text; the exception itself goes on), ``started_utc``, ``raw``.
    """

    def __init__(
        self,
        meters: Sequence[OpenMeter] = (),
        *,
        synchronise: Callable[[], None] = do_nothing,
        clock: Clock | None = None,
        absent: Mapping[str, Reading] | None = None,
        simulated: bool = False,
    ) -> None:
        self.readings: dict[str, Reading] = {}
        self.flags: tuple[Flag, ...] = ()
        self.failed: str | None = None
        self.simulated = simulated
        self.started_utc = ""
        self.raw: RawWindow | None = None
        self._meters = tuple(meters)
        self._synchronise = synchronise
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._absent = dict(absent or {})
        self._troubles: dict[str, str] = {}
        self._before: list[Sample | None] = []
        self._wall_ns = 0
        self._start_ns = 0

    def __enter__(self) -> MeasuringWindow:
        self._wall_ns = self._clock.wall_ns()
        self.started_utc = datetime.fromtimestamp(self._wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        for one in self._meters:
            self._attempt(one, one.instrument.arm)
        self._synchronise()
        self._before = [self._attempt(one, one.instrument.start) for one in self._meters]
        self._start_ns = self._clock.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._synchronise()
        except BaseException as late:  # queued work fails here, on CUDA
            error = error if error is not None else late
            raise
        finally:
            end_ns = self._clock.monotonic_ns()
            after = [self._attempt(one, one.instrument.stop) for one in reversed(self._meters)]
            after.reverse()
            if error is not None:
                self.failed = f"{type(error).__name__}: {error}"
            self._conclude(Interval(start_ns=self._start_ns, end_ns=end_ns), after)

    def _attempt(self, one: OpenMeter, action: Callable[[], Any]) -> Any:
        """Run one action of a meter; a device that fails is remembered, the work goes on."""
        try:
            return action()
        except (MeterError, OSError) as error:
            self._troubles.setdefault(one.meter.name, f"{one.meter.name} could not be read: {error}")
            return None

    def _conclude(self, interval: Interval, after: list[Sample | None]) -> None:
        """Interpret the samples; all of it happens after the last read."""
        pairs = list(zip(self._before, after, strict=True))
        names = [one.meter.name for one in self._meters]
        self.raw = RawWindow(
            wall_ns=self._wall_ns,
            interval=interval,
            facts={one.meter.name: one.instrument.facts for one in self._meters},
            samples=dict(zip(names, pairs, strict=True)),
            failed=self.failed,
        )
        flags: list[Flag] = []
        readings: dict[str, Reading] = {**self._absent, "time_s": _time(interval)}
        if isinstance(readings["time_s"], Absent):
            flags.append(Flag(kind="clock_backwards", message=readings["time_s"].reason))
        for one, (before, later) in zip(self._meters, pairs, strict=True):
            trouble = self._troubles.get(one.meter.name)
            if trouble is not None or before is None or later is None:
                reason = trouble or f"{one.meter.name} gave no sample"
                readings.update(one.meter.absent(reason))
                flags.append(Flag(kind="meter_lost", message=reason))
                continue
            said = one.meter.interpret(one.instrument.facts, before, later, interval)
            readings.update(said.readings)
            flags.extend(said.flags)
        for one in self._meters:
            if one.meter.derive is not None:
                more = one.meter.derive(readings)
                readings.update(more.readings)
                flags.extend(more.flags)
        self.readings = {k: _stamped(v) for k, v in readings.items()} if self.simulated else readings
        self.flags = tuple(flags)

    def to_json(self) -> dict[str, Any]:
        """Return the record of this window, raw samples included."""
        assert self.raw is not None, "the window is still open"
        return {
            "started_utc": self.started_utc,
            "readings": {name: reading.to_json() for name, reading in self.readings.items()},
            "flags": [flag.to_json() for flag in self.flags],
            "failed": self.failed,
            "simulated": self.simulated,
            "raw": self.raw.to_json(),
        }


def _time(interval: Interval) -> Reading:
    if interval.end_ns < interval.start_ns:
        return Absent(f"the monotonic clock went backwards by {-interval.elapsed_s:.3g} s")
    return measured(interval.elapsed_s, "s", TIME_SOURCE)


def _stamped(reading: Reading) -> Reading:
    if isinstance(reading, Absent):
        return reading
    return Quantity(
        value=reading.value,
        unit=reading.unit,
        origin=reading.origin,
        source=f"{SIMULATED}{reading.source}",
        low=reading.low,
        high=reading.high,
    )


class Panel:
    """The meters of one device, opened once and used for many windows.

    ``with Panel.open("cpu") as panel: with panel.window() as w: step()`` and then ``w.readings``.
    """

    def __init__(
        self,
        meters: OpenedMeters,
        *,
        synchronise: Callable[[], None] = do_nothing,
        clock: Clock | None = None,
        simulated: bool = False,
    ) -> None:
        self.meters = meters
        self.simulated = simulated
        self._synchronise = synchronise
        self._clock = clock

    @classmethod
    def open(cls, device: str, names: Sequence[str] | None = None) -> Panel:
        """Open the default meters of a device, or the named ones.

        Inside of :func:`panels_from`, whoever called that decides where the meters come from.
        """
        opener = _OPENER.get()
        return cls.open_here(device, names) if opener is None else opener(device, names)

    @classmethod
    def open_here(cls, device: str, names: Sequence[str] | None = None) -> Panel:
        """Open the meters of this machine, whatever :func:`panels_from` says."""
        return cls(open_meters(device, names), synchronise=synchronise_of(device))

    def window(self) -> MeasuringWindow:
        """Return a new window over all meters of this panel."""
        return MeasuringWindow(
            self.meters.opened,
            synchronise=self._synchronise,
            clock=self._clock,
            absent=self.meters.absent,
            simulated=self.simulated,
        )

    def measure_own_cost(self, repeats: int = 5) -> dict[str, Reading]:
        """Measure what measuring costs: the median of empty windows.

        ``inside_s`` is added to every interval this panel measures; ``around_s`` is spent outside of it, arming and
        reading. Call it once, before the first real window.
        """
        outer: Clock = self._clock if self._clock is not None else SystemClock()
        inside: list[float] = []
        around: list[float] = []
        for _ in range(repeats + 1):
            begin_ns = outer.monotonic_ns()
            with self.window() as empty:
                pass
            whole_s = (outer.monotonic_ns() - begin_ns) / 1e9
            assert empty.raw is not None
            inside.append(empty.raw.interval.elapsed_s)
            around.append(whole_s - empty.raw.interval.elapsed_s)
        source = f"median of {repeats} empty windows, {TIME_SOURCE}"
        # The first window pays for imports and cold caches, which no later one does.
        return {
            "inside_s": measured(statistics.median(inside[1:]), "s", source),
            "around_s": measured(statistics.median(around[1:]), "s", source),
        }

    def close(self) -> None:
        """Give all devices back."""
        self.meters.close()

    def __enter__(self) -> Panel:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()


PanelOpener = Callable[[str, Sequence[str] | None], Panel]
_OPENER: ContextVar[PanelOpener | None] = ContextVar("panel_opener", default=None)


@contextmanager
def panels_from(opener: PanelOpener) -> Iterator[None]:
    """Let ``opener`` answer every :meth:`Panel.open` of the body: to record what meters read, or to play it back.

    The laboratory asks for a panel without knowing which; the launcher that starts a cell decides.
    """
    token = _OPENER.set(opener)
    try:
        yield
    finally:
        _OPENER.reset(token)
