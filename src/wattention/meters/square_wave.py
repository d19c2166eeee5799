"""A load that goes on and off on a known schedule, and what a power sampler makes of it.

The device itself serves as signal generator: no reference instrument is needed to see that a sensor averages over a
second, comes late, or looks away for part of the time. From the samples alone::

    levels    10th and 90th percentile of the watts; the threshold lies midway
    edges     where the samples cross the threshold, by linear interpolation
    period    median distance of rising edges        duty   median (falling - rising) / period
    lag       median of (rising edge seen - rising edge made)

A mean over A seconds moves edges by A / 2 and, where A is longer than the pulse, stretches it: hence a duty below one
half. Resolution is one sample or one renewal of the sensor, whichever is longer.

Source: the idea of square-wave probing of nvidia-smi, Yang, Adamek and Armour, arXiv 2312.02741, section 4.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattention.meters.power_process import PowerSample

PERIOD_S = 2.0
DUTY = 0.3
PERIODS = 8
FLAT = 0.05
"""Levels closer than this, relative to the lower one, are no wave."""


@dataclass(frozen=True, kw_only=True)
class Pulse:
    """One pulse of the load as it was really made."""

    on_ns: int
    off_ns: int


@dataclass(frozen=True, kw_only=True)
class SeenWave:
    """What the samples show; ``duty`` and ``lag_s`` are of the median pulse."""

    period_s: float
    duty: float
    lag_s: float
    low_w: float
    high_w: float


def make_square_wave(
    busy: Callable[[float], object], rest: Callable[[float], object], now_ns: Callable[[], int]
) -> list[Pulse]:
    """Put a device to work and to rest on the schedule; return when that really happened.

    Args:
        busy: works for about so many seconds and returns when the device is done.
        rest: leaves it alone for so many seconds.
        now_ns: the clock that stamps the samples.
    """
    pulses = []
    start_ns = now_ns()
    for number in range(PERIODS):
        on_ns = now_ns()
        busy(PERIOD_S * DUTY)
        pulses.append(Pulse(on_ns=on_ns, off_ns=now_ns()))
        next_ns = start_ns + int((number + 1) * PERIOD_S * 1e9)
        rest(max(0.0, (next_ns - now_ns()) / 1e9))
    return pulses


def recover_square_wave(samples: Sequence[PowerSample], pulses: Sequence[Pulse]) -> SeenWave | None:
    """Return what the samples show of the pulses; None where they show no wave at all."""
    if len(samples) < 2 * len(pulses):
        return None
    watts = sorted(power_w for _, power_w in samples)
    low_w, high_w = watts[len(watts) // 10], watts[-1 - len(watts) // 10]
    if high_w - low_w <= FLAT * max(low_w, 1e-9):
        return None
    edges = _crossings(samples, (low_w + high_w) / 2)
    rising = [at for at, up in edges if up]
    widths = [(b[0] - a[0]) / 1e9 for a, b in itertools.pairwise(edges) if a[1] and not b[1]]
    periods = [(b - a) / 1e9 for a, b in itertools.pairwise(rising)]
    if len(periods) < 2 or not widths:
        return None
    period_s = statistics.median(periods)
    lags = [(min(rising, key=lambda at: abs(at - pulse.on_ns)) - pulse.on_ns) / 1e9 for pulse in pulses]
    return SeenWave(
        period_s=period_s,
        duty=statistics.median(widths) / period_s,
        lag_s=statistics.median(lags),
        low_w=low_w,
        high_w=high_w,
    )


def made_wave(pulses: Sequence[Pulse]) -> tuple[float, float]:
    """Return (period in seconds, duty) of the load as it was made."""
    period_s = statistics.median((b.on_ns - a.on_ns) / 1e9 for a, b in itertools.pairwise(pulses))
    return period_s, statistics.median((pulse.off_ns - pulse.on_ns) / 1e9 for pulse in pulses) / period_s


def _crossings(samples: Sequence[PowerSample], threshold_w: float) -> list[tuple[float, bool]]:
    """Return (instant, rising?) of every crossing."""
    found = []
    for (t0, w0), (t1, w1) in itertools.pairwise(samples):
        if (w0 < threshold_w) != (w1 < threshold_w):
            found.append((t0 + (t1 - t0) * (threshold_w - w0) / (w1 - w0), w1 > w0))
    return found
