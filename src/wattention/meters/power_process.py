"""A power sampler in a process of its own: it samples while the measured process is busy.

The child stamps every sample with CLOCK_MONOTONIC, which all processes of a machine share, and keeps the recent ones;
after a window the parent asks for those since the window's start. Inside the window nothing is exchanged. The energy is
the trapezoid integral of power between the two clock readings of the window, with linear interpolation at the edges.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from wattention.meters.base import MeterError

PowerSample = tuple[int, float]
"""(nanoseconds of CLOCK_MONOTONIC, watts)"""
Reader = Callable[[], float]
KEPT = 100_000
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0


def integrate_power(samples: Sequence[PowerSample], start_ns: int, end_ns: int) -> float | None:
    """Integrate watts over [start, end] in joules; None unless samples reach both ends and one lies inside.

    Trapezoids between samples; power at the two ends is interpolated linearly.
    """
    inside = [s for s in samples if start_ns < s[0] < end_ns]
    earlier = [s for s in samples if s[0] <= start_ns]
    later = [s for s in samples if s[0] >= end_ns]
    if not inside or not earlier or not later:
        return None
    first = (start_ns, _between(earlier[-1], inside[0], start_ns))
    last = (end_ns, _between(inside[-1], later[0], end_ns))
    points = [first, *inside, last]
    pairs = itertools.pairwise(points)
    return sum((b[0] - a[0]) / 1e9 * (a[1] + b[1]) / 2 for a, b in pairs)


def _between(a: PowerSample, b: PowerSample, at_ns: int) -> float:
    return a[1] if a[0] == b[0] else a[1] + (b[1] - a[1]) * (at_ns - a[0]) / (b[0] - a[0])


class PowerProcess:
    """A running sampler.

    Args:
        factory: picklable; called in the child, returns (reader of watts, name of the sensor).
        period_s: seconds between samples.

    Errors: MeterError when the child cannot open its sensor, or stops answering.
    """

    def __init__(self, factory: Callable[[], tuple[Reader, str]], *, period_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_sample_forever, args=(theirs, factory, period_s), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.sensor = str(self._receive(START_TIMEOUT_S))
        except MeterError:
            self.close()
            raise

    def since(self, start_ns: int) -> list[PowerSample]:
        """Return the samples from the last one before ``start_ns`` up to one taken now."""
        try:
            self._pipe.send(start_ns)
        except OSError as error:
            raise MeterError("the power sampler has ended") from error
        samples: list[PowerSample] = [(int(at), float(watts)) for at, watts in self._receive(ANSWER_TIMEOUT_S)]
        return samples

    @property
    def pid(self) -> int:
        """The sampling process."""
        assert self._process.pid is not None
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the CPU seconds that the sampling process has used."""
        psutil: Any = importlib.import_module("psutil")
        try:
            times = psutil.Process(self.pid).cpu_times()
        except psutil.NoSuchProcess as error:
            raise MeterError("the power sampler has ended") from error
        return float(times.user + times.system)

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self._pipe.poll(timeout_s):
                raise MeterError(f"the power sampler did not answer within {timeout_s:g} s")
            kind, content = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise MeterError("the power sampler has ended") from error
        if kind == "trouble":
            raise MeterError(f"the power sampler failed: {content}")
        return content

    def close(self) -> None:
        """End the child."""
        self._pipe.close()
        self._process.join(timeout=2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def _sample_forever(pipe: Connection, factory: Callable[[], tuple[Reader, str]], period_s: float) -> None:
    """The child: sample, answer, end when the parent's end of the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes us
    try:
        read, sensor = factory()
        samples: deque[PowerSample] = deque([_stamped(read)], maxlen=KEPT)
        pipe.send(("ready", sensor))
        due_s = time.perf_counter() + period_s
        while True:
            if pipe.poll(max(0.0, due_s - time.perf_counter())):
                start_ns = pipe.recv()
                samples.append(_stamped(read))
                pipe.send(("samples", _recent(samples, start_ns)))
                continue
            samples.append(_stamped(read))
            due_s = max(due_s + period_s, time.perf_counter())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # whatever a vendor's library throws: the parent has to hear of it
        try:
            pipe.send(("trouble", f"{type(error).__name__}: {error}"))
        except OSError:
            return


def _stamped(read: Reader) -> PowerSample:
    before_ns = time.perf_counter_ns()
    watts = read()
    return (before_ns + time.perf_counter_ns()) // 2, watts


def _recent(samples: Sequence[PowerSample], start_ns: int) -> list[PowerSample]:
    earlier = [sample for sample in samples if sample[0] <= start_ns]
    return [*earlier[-1:], *(sample for sample in samples if sample[0] > start_ns)]
