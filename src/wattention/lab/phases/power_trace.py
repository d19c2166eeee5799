"""The power of a cell over its time, as the sampler saw it: kept with the phase it belongs to, thinned to a bound.

Each phase remembers ``window_s`` (its begin and end on the cell's clock) and, where a sampler ran beside the work,
``power_at_s`` and ``power_w`` inside of it. A long trace is averaged over equal stretches, which keeps its integral.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wattention.core.records import Phase
from wattention.meters.window import RawWindow

MOST_POINTS = 2_000
"""Power samples that one cell's record holds at most, over all of its phases."""
SAMPLER = "sampled_power"


def window_samples(raw: RawWindow, origin_ns: int) -> dict[str, tuple[float, ...]]:
    """Return the samples of one closed window on the clock that starts at ``origin_ns``, in seconds and watts."""
    interval = raw.interval
    found: dict[str, tuple[float, ...]] = {
        "window_s": ((interval.start_ns - origin_ns) / 1e9, (interval.end_ns - origin_ns) / 1e9)
    }
    _, after = raw.samples.get(SAMPLER, (None, None))
    inside = [
        (int(at_ns), float(watts))
        for at_ns, watts in (after or {}).get("samples", ())
        if interval.start_ns <= at_ns <= interval.end_ns
    ]
    if inside:
        found["power_at_s"] = tuple((at_ns - origin_ns) / 1e9 for at_ns, _ in inside)
        found["power_w"] = tuple(watts for _, watts in inside)
    return found


def bound_traces(phases: Mapping[str, Phase], most: int = MOST_POINTS) -> dict[str, Phase]:
    """Return the phases with at most ``most`` power samples in all, each the mean of an equal stretch."""
    traced = [phase for phase in phases.values() if "power_w" in phase.samples]
    total = sum(len(phase.samples["power_w"]) for phase in traced)
    if total <= most:
        return dict(phases)
    stretch = -(-total // max(1, most - len(traced)))  # a phase's last stretch may be short: one point more
    return {name: _thinned(phase, stretch) if phase in traced else phase for name, phase in phases.items()}


def _thinned(phase: Phase, stretch: int) -> Phase:
    thin = {name: _means(phase.samples[name], stretch) for name in ("power_at_s", "power_w")}
    return replace(phase, samples={**phase.samples, **thin})


def _means(values: Sequence[float], stretch: int) -> tuple[float, ...]:
    parts = [values[start : start + stretch] for start in range(0, len(values), stretch)]
    return tuple(sum(part) / len(part) for part in parts)
