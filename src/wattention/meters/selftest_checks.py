"""The judgements of the self-test: pure functions from measured windows to verdicts, with their limits stated.

Linearity: E = a + b W by least squares over the loads; R^2, and the intercept against one least load. Agreement: the
two equal loads against the window parts of their uncertainty alone, since what windows share cannot tell them apart.
Counter against integral: within both uncertainties, of which the class is one board's and counts once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from wattention.core.energy_uncertainty import ratio_half_width, uncertainty_of
from wattention.core.quantities import Absent, Quantity, Reading, measured, predicted
from wattention.meters.base import MeterError, is_cuda
from wattention.meters.clock import SUSPEND_LIMIT_S
from wattention.meters.estimate import choose_cpu_power, estimate_cpu_energy
from wattention.meters.power_process import PowerSample
from wattention.meters.selftest_rig import Check, LoadWindow, Rig, Verdict
from wattention.meters.sensor_class import find_class
from wattention.meters.square_wave import Pulse, made_wave, recover_square_wave
from wattention.meters.window import MeasuringWindow

LEAST_R2 = 0.999
MOST_INTERCEPT = 0.05
"""Of one least load: work that costs nothing, or cost without work."""
MOST_CPU_SPREAD = 0.05
"""Two equal loads may differ by this much in CPU seconds, which have no stated uncertainty."""
LEAST_CONTRAST = 1.05
MOST_WAVE_ERROR = 0.1
"""Of the period, for period, duty and lag."""
MOST_SAMPLER_SHARE = 0.005
"""Of one core: the goal for the sampler's own cost."""


def check_clock(rig: Rig, spent_s: float, wall_s: float) -> Check:
    """Compare the monotonic clock with the wall clock over the whole test."""
    reads = [rig.clock.monotonic_ns() for _ in range(1000)]
    steps = [b - a for a, b in itertools.pairwise(reads)]
    if min(steps) < 0:
        return Check(name="clock", instrument="monotonic clock", verdict="faulty", finding="it ran backwards")
    tick_s = min((step for step in steps if step > 0), default=0) / 1e9
    rate = (wall_s - spent_s) / spent_s if spent_s > 0 else 0.0
    apart = abs(wall_s - spent_s)
    return Check(
        name="clock",
        instrument="monotonic clock",
        verdict="sound" if apart < max(SUSPEND_LIMIT_S, 1e-3 * spent_s) else "doubtful",
        finding=f"two reads differ by {tick_s * 1e9:.0f} ns at least; the wall clock ran {rate * 1e6:+.0f} parts in a "
        f"million against it over {spent_s:.3g} s",
        readings={"tick_s": measured(tick_s, "s", "least difference of 1,000 readings in a row")},
    )


def check_own_cost(cost: Mapping[str, Reading]) -> Check:
    """State what an empty window costs."""
    inside, around = cost.get("inside_s"), cost.get("around_s")
    if not isinstance(inside, Quantity) or not isinstance(around, Quantity):
        return Check(name="window", instrument="measuring window", verdict="not measurable", finding="no empty window")
    return Check(
        name="window",
        instrument="measuring window",
        verdict="sound" if inside.value < 1e-3 else "doubtful",
        finding=f"adds {inside.value * 1e6:.3g} µs to the interval and takes {around.value * 1e3:.3g} ms around it",
        readings=dict(cost),
    )


def check_seconds(rig: Rig, loads: Sequence[LoadWindow]) -> list[Check]:
    """Fit seconds and, for work on the CPU, CPU seconds against work, and compare the two equal loads."""
    found = []
    for name, instrument in (("time_s", "elapsed seconds"), ("cpu_s", "CPU seconds of this process tree")):
        if name == "cpu_s" and is_cuda(rig.device):
            continue  # the host only waits, and how it waits is no work
        values = _values(loads, name)
        if isinstance(values, Absent):
            if name in loads[0].window.readings:
                found.append(_unmeasurable(f"linearity {name}", instrument, values.reason))
            continue
        units = [load.units for load in loads]
        r2, intercept = _fit(units, values)
        spread = abs(values[0] - values[-1]) / max(values[0], values[-1], 1e-12)
        good = r2 >= LEAST_R2 and abs(intercept) <= MOST_INTERCEPT and spread <= MOST_CPU_SPREAD
        found.append(
            Check(
                name=f"linearity {name}",
                instrument=instrument,
                verdict="sound" if good else "doubtful",
                finding=f"{_line(r2, intercept, len(loads))}; two equal loads differ by {spread:.1%}"
                + ("" if good else ": company on the machine, or a clock frequency that changed"),
                readings={"r_squared": predicted(r2, "1", f"least squares of {name} over units of work")},
            )
        )
    return found


def check_counters(rig: Rig, resting: MeasuringWindow, loads: Sequence[LoadWindow]) -> list[Check]:
    """Judge every energy counter: its step, its linearity, its agreement with itself and with the sampler."""
    if rig.counters is None:
        reason = _why_absent(resting, "energy_j")
        return [_unmeasurable("energy counters", "energy counters", reason)]
    found = []
    for name, about in rig.counters["domains"].items():
        instrument = f"counter of {name}"
        found.append(_check_step(name, about, instrument))
        values = _values(loads, f"energy_{name}_j")
        if isinstance(values, Absent):
            kinds = {flag.kind for load in loads for flag in load.window.flags}
            broken = any(kind.startswith("counter_") or kind == "implausible_power" for kind in kinds)
            verdict: Verdict = "faulty" if broken else "not measurable"
            found.append(Check(name=f"linearity {name}", instrument=instrument, verdict=verdict, finding=values.reason))
            continue
        found.append(_check_linearity(name, instrument, loads, values))
        found.append(_check_contrast(name, instrument, resting, loads))
        found.append(_check_agreement(name, instrument, loads))
        if rig.sampler is not None and rig.sampler.facts["domain"] == name:
            found.append(_check_gap(name, loads))
    found.extend(_unmeasurable(f"counter {name}", name, why) for name, why in rig.counters["missing"].items())
    return found


def _check_step(name: str, about: Mapping[str, float | None], instrument: str) -> Check:
    sensor = find_class(str(about.get("sensor_class")))
    if about["step_s"] is None or about["step_j"] is None:
        return Check(
            name=f"step {name}", instrument=instrument, verdict="doubtful", finding="did not move while it was watched"
        )
    longest_s = about.get("longest_step_s") or about["step_s"]
    ragged = longest_s > 2 * about["step_s"]
    return Check(
        name=f"step {name}",
        instrument=instrument,
        verdict="doubtful" if ragged else "sound",
        finding=f"moves every {about['step_s']:.3g} s (longest {longest_s:.3g} s), by up to {about['step_j']:.3g} J at "
        f"rest; {sensor.title}",
        readings={
            "step_s": measured(about["step_s"], "s", "median time between moves when the meter opened"),
            "step_j": measured(about["step_j"], "J", "largest move when the meter opened"),
        },
    )


def _check_linearity(name: str, instrument: str, loads: Sequence[LoadWindow], values: Sequence[float]) -> Check:
    r2, intercept = _fit([load.units for load in loads], values)
    verdict: Verdict = "sound"
    if r2 < LEAST_R2 or abs(intercept) > MOST_INTERCEPT:
        verdict = "doubtful" if r2 >= 0.98 else "faulty"
    return Check(
        name=f"linearity {name}",
        instrument=instrument,
        verdict=verdict,
        finding=_line(r2, intercept, len(loads)),
        readings={
            "r_squared": predicted(r2, "1", "least squares of joules over units of work"),
            "intercept": predicted(intercept, "1", "joules at no work over joules of the least load"),
        },
    )


def _check_contrast(name: str, instrument: str, resting: MeasuringWindow, loads: Sequence[LoadWindow]) -> Check:
    key = f"energy_{name}_j"
    quiet, busy = _power(resting, key), _power(max(loads, key=lambda load: load.units).window, key)
    if isinstance(quiet, Absent):
        return _unmeasurable(f"contrast {name}", instrument, quiet.reason)
    assert not isinstance(busy, Absent)
    sees = busy > LEAST_CONTRAST * quiet
    return Check(
        name=f"contrast {name}",
        instrument=instrument,
        verdict="sound" if sees else "faulty",
        finding=f"{quiet:.4g} W at rest, {busy:.4g} W at work" + ("" if sees else ": it does not see the load"),
        readings={
            "rest_w": measured(quiet, "W", f"{key} over its seconds, at rest"),
            "busy_w": measured(busy, "W", f"{key} over its seconds, the largest load"),
        },
    )


def _check_agreement(name: str, instrument: str, loads: Sequence[LoadWindow]) -> Check:
    pairs = [(load.window.readings[f"energy_{name}_j"], load.window.readings) for load in (loads[0], loads[-1])]
    (first, readings), (second, later) = pairs
    parts = uncertainty_of(readings, name), uncertainty_of(later, name)
    assert isinstance(first, Quantity)
    assert isinstance(second, Quantity)
    assert parts[0] is not None
    assert parts[1] is not None
    half = ratio_half_width(first.value, parts[0], second.value, parts[1])
    change = math.log(second.value / first.value)
    agree = abs(change) <= half
    return Check(
        name=f"A/A {name}",
        instrument=instrument,
        verdict="sound" if agree else "doubtful",
        finding=f"two equal loads differ by {change:+.2%}; the stated uncertainty of their ratio is ±{half:.2%}"
        + ("" if agree else ": the device warmed up, or was disturbed"),
        readings={"difference": predicted(change, "1", "ln of the second over the first")},
    )


def _check_gap(name: str, loads: Sequence[LoadWindow]) -> Check:
    """Compare counter and integral over the largest load."""
    readings = max(loads, key=lambda load: load.units).window.readings
    counter, sampled = readings[f"energy_{name}_j"], readings.get(f"sampled_energy_{name}_j", Absent("no samples"))
    title, check = "counter against sampled power", f"integral {name}"
    for reading in (counter, sampled):
        if isinstance(reading, Absent):
            return _unmeasurable(check, title, reading.reason)
    assert isinstance(counter, Quantity)
    assert isinstance(sampled, Quantity)
    own, other = uncertainty_of(readings, name), uncertainty_of(readings, f"sampled_{name}")
    assert own is not None
    assert other is not None
    ratio = sampled.value / counter.value
    allowed_j = math.hypot(own.window_j, other.window_j, max(own.shared_j, other.shared_j))
    agree = abs(sampled.value - counter.value) <= allowed_j
    return Check(
        name=check,
        instrument=title,
        verdict="sound" if agree else "faulty",
        finding=f"the integral is {ratio:.4g} times the counter, 1 ± {allowed_j / counter.value:.2g} expected"
        + _name_factor(ratio, agree=agree),
        readings={"ratio": predicted(ratio, "1", "sampled energy over the counter's, the largest load")},
    )


def _name_factor(ratio: float, *, agree: bool) -> str:
    """Say what a gap looks like."""
    if agree:
        return ""
    power = math.log10(ratio) if ratio > 0 else 0.0
    if abs(power) > 2.5 and abs(power - 3 * round(power / 3)) < 0.1:
        return ": near a power of 1000, so the counter's unit is wrong, or the sensor's"
    return ": one of the two does not see all of the load" if ratio < 1 else ": one of the two sees more than there is"


def check_wave(samples: Sequence[PowerSample], pulses: Sequence[Pulse]) -> Check:
    """Compare the wave that the samples show with the one that was made."""
    title = "sampled power"
    period_s, duty = made_wave(pulses)
    seen = recover_square_wave(samples, pulses)
    if seen is None:
        finding = f"shows no wave: a load of {period_s:.3g} s with duty {duty:.0%} is invisible to it"
        return Check(name="square wave", instrument=title, verdict="faulty", finding=finding)
    faults = []
    if abs(seen.period_s / period_s - 1) > MOST_WAVE_ERROR:
        faults.append("the period is wrong")
    if abs(seen.duty - duty) > MOST_WAVE_ERROR:
        faults.append(
            "it averages over more than a pulse" if seen.duty > duty else "it looks away for part of the time"
        )
    if abs(seen.lag_s) > MOST_WAVE_ERROR * period_s:
        faults.append(f"it lags by {seen.lag_s:.2g} s: windows need margins, or must be much longer")
    return Check(
        name="square wave",
        instrument=title,
        verdict="faulty" if faults else "sound",
        finding=f"made {period_s:.3g} s with duty {duty:.0%}, seen {seen.period_s:.3g} s with duty {seen.duty:.0%}, "
        f"{seen.lag_s:+.2f} s late, {seen.low_w:.4g} to {seen.high_w:.4g} W"
        + "".join(f"; {fault}" for fault in faults),
        readings={
            "period_s": measured(seen.period_s, "s", "median distance of rising edges in the samples"),
            "duty": measured(seen.duty, "1", "median pulse over period in the samples"),
            "lag_s": measured(seen.lag_s, "s", "median of rising edge seen minus made"),
        },
    )


def check_sampler_cost(rig: Rig, loads: Sequence[LoadWindow]) -> Check:
    """State the CPU time of the sampling process against the time it has run."""
    sampler = rig.sampler
    if sampler is None:
        return no_sampler(rig, "sampler's cost")
    try:
        before_s, start_ns = sampler.source.cpu_s(), rig.clock.monotonic_ns()
        rig.work(loads[0].units)
        share = (sampler.source.cpu_s() - before_s) / max(1e-9, (rig.clock.monotonic_ns() - start_ns) / 1e9)
    except MeterError as error:
        return Check(name="sampler's cost", instrument="sampling process", verdict="faulty", finding=str(error))
    return Check(
        name="sampler's cost",
        instrument="sampling process",
        verdict="sound" if share <= MOST_SAMPLER_SHARE else "doubtful",
        finding=f"uses {share:.2%} of one core (goal {MOST_SAMPLER_SHARE:.1%})",
        readings={"share": measured(share, "1", "CPU seconds of the sampling process over seconds of a load")},
    )


def check_memory(window: MeasuringWindow, touched_bytes: int) -> Check:
    """Compare the rise of resident memory with what was really touched."""
    title, readings = "peak resident memory", window.readings
    peak, before = (
        readings.get(name, Absent("not among the meters")) for name in ("peak_rss_bytes", "rss_before_bytes")
    )
    if isinstance(peak, Absent) or isinstance(before, Absent):
        reason = next(one.reason for one in (peak, before) if isinstance(one, Absent))
        return _unmeasurable("memory", title, reason)
    seen = peak.value - before.value
    return Check(
        name="memory",
        instrument=title,
        verdict="sound" if abs(seen / touched_bytes - 1) < 0.1 else "doubtful",
        finding=f"{touched_bytes / 2**20:.0f} MiB were touched, {seen / 2**20:.1f} MiB seen",
        readings={"seen_bytes": measured(seen, "byte", f"{peak.source}, minus VmRSS before")},
    )


def check_estimate(rig: Rig, loads: Sequence[LoadWindow]) -> Check:
    """State the range of the estimate that stands in where no counter can be read."""
    load = max(loads, key=lambda one: one.units).window
    cpu_s = load.readings.get("cpu_s", Absent("CPU seconds are not among the meters"))
    said = estimate_cpu_energy(load.readings["time_s"], cpu_s, power=choose_cpu_power(), cores=rig.cores).energy_j
    if isinstance(said, Absent):
        return _unmeasurable("estimate", "estimated CPU energy", said.reason)
    assert said.low is not None
    assert said.high is not None
    time = load.readings["time_s"]
    assert isinstance(time, Quantity)
    low_w, middle_w, high_w = (joules / time.value for joules in (said.low, said.value, said.high))
    return Check(
        name="estimate",
        instrument="estimated CPU energy, no instrument",
        verdict="doubtful",
        finding=f"{middle_w:.3g} W at work, anything from {low_w:.3g} to {high_w:.3g} W (a factor of "
        f"{high_w / max(low_w, 1e-9):.2g}): it knows seconds, not power",
        readings={"estimated_energy_j": said},
    )


def no_sampler(rig: Rig, name: str) -> Check:
    """Say why nothing can be asked of a sampler that is not there."""
    reason = next(
        (
            reading.reason
            for key, reading in rig.panel.meters.absent.items()
            if key.startswith("sampled_energy") and isinstance(reading, Absent)
        ),
        "no power sensor is sampled here",
    )
    return _unmeasurable(name, "sampled power", reason)


def _unmeasurable(name: str, instrument: str, reason: str) -> Check:
    return Check(name=name, instrument=instrument, verdict="not measurable", finding=reason)


def _values(loads: Sequence[LoadWindow], name: str) -> list[float] | Absent:
    found = []
    for load in loads:
        reading = load.window.readings.get(name, Absent("not among the meters"))
        if isinstance(reading, Absent):
            return reading
        found.append(reading.value)
    return found


def _power(window: MeasuringWindow, key: str) -> float | Absent:
    energy, time = window.readings[key], window.readings["time_s"]
    if isinstance(energy, Absent):
        return energy
    assert isinstance(time, Quantity)
    return energy.value / time.value


def _why_absent(window: MeasuringWindow, name: str) -> str:
    reading = window.readings.get(name)
    return reading.reason if isinstance(reading, Absent) else "no energy counter is among the meters"


def _fit(units: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return (R^2, intercept over the least load's value) of a line through the loads."""
    x, y = np.asarray(units, dtype=float), np.asarray(values)
    slope, intercept = np.polyfit(x, y, 1)
    rest = y - (slope * x + intercept)
    total = float(((y - y.mean()) ** 2).sum())
    r2 = 1.0 - float((rest**2).sum()) / total if total > 0 else 0.0
    least = slope * x.min()
    return r2, float(intercept / least) if least else math.inf


def _line(r2: float, intercept: float, count: int) -> str:
    return f"R² {r2:.5f} over {count} loads, {intercept:+.1%} of the least load at no work"
