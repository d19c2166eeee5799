"""From traces and a profile to a :class:`Prediction`; the formulas stand in :mod:`wattention.analysis.predict`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattention.analysis.operator_time import OperatorClock, stands_for
from wattention.analysis.predict import (
    Costs,
    Energy,
    LevelTraffic,
    MemoryPrediction,
    Prediction,
    PredictionQuery,
    RunTotals,
    Workload,
)
from wattention.analysis.traffic import traffic_of
from wattention.core.operators import StepTrace
from wattention.core.quantities import Absent, Quantity, Reading, predicted
from wattention.hardware.profile import HardwareProfile, MemoryLevel, Number


@dataclass(frozen=True, kw_only=True)
class TracedModel:
    """What tracing and the closed forms tell of one point, whatever the device."""

    traces: Mapping[Workload, StepTrace]
    parameters: int
    model_flop: int
    """Of a training step: unmasked pairs, nothing recomputed."""
    marks: tuple[str, ...] = ()


def predict_costs(query: PredictionQuery, model: TracedModel, profile: HardwareProfile) -> Prediction:
    """Return everything that is predicted of one point.

    Raises:
        UserError: the profile lacks a rate or a bandwidth without which no time can be told.
    """
    clock = clock_of(profile)
    costs = {workload: _costs(workload, query, trace, clock) for workload, trace in model.traces.items()}
    train = costs["train"]
    run = None if query.run_tokens is None else _run_totals(query, train)
    return Prediction(
        query=query,
        device=profile.title,
        calibrated=clock.calibrated,
        train=train,
        prefill=costs["prefill"],
        decode=costs["decode"],
        memory=predict_memory(model.traces["train"], query, profile),
        cache=predicted(model.traces["decode"].cache_bytes, "byte", f"traced: all layers after {query.tokens} tokens"),
        parameters=predicted(model.parameters, "count", "closed forms of the model and of the mechanism's cost record"),
        model_flop=predicted(model.model_flop, "flop", "closed forms: unmasked pairs, forward and twice that backward"),
        run=run,
        marks=(*model.marks, *_marks(query, profile, clock)),
    )


_CLOCKS: dict[int, tuple[HardwareProfile, OperatorClock]] = {}


def clock_of(profile: HardwareProfile) -> OperatorClock:
    """Return the clock of a profile; the fits of a calibrated one are made once."""
    found = _CLOCKS.get(id(profile))
    if found is None or found[0] is not profile:
        found = _CLOCKS[id(profile)] = profile, OperatorClock(profile)
    return found[1]


def _marks(query: PredictionQuery, profile: HardwareProfile, clock: OperatorClock) -> Iterable[str]:
    if not clock.calibrated and query.precision not in profile.peak:
        other = stands_for(query.precision, profile)
        yield f"the profile has no rate for {query.precision}: that of {other} stands for it"
    if not clock.calibrated:
        yield "data-sheet rates: no kernel reaches all of them, so times (and energies) are lower limits"
    if profile.launch_overhead is None:
        yield "the profile has no launch overhead: short operators really take longer"
    if profile.kind == "cpu":
        yield "operators follow each other, each with its launch overhead"
    else:
        yield "launches overlap with execution: the longer of the two is the time"
    recalled = sorted(name for name, number in _numbers(profile) if number.recalled)
    if recalled:
        yield f"figures of the profile that were not checked: {', '.join(recalled)}"


def _numbers(profile: HardwareProfile) -> Iterable[tuple[str, Number]]:
    named: list[tuple[str, Number | None]] = [("idle power", profile.idle_power), ("launch", profile.launch_overhead)]
    named += [(f"peak {dtype}", number) for dtype, number in profile.peak.items()]
    named += [(f"energy of {dtype}", number) for dtype, number in profile.flop_energy.items()]
    for level in profile.levels:
        named += [(f"{level.name} bandwidth", level.bandwidth), (f"{level.name} energy", level.energy)]
    return ((name, number) for name, number in named if number is not None)


def _costs(workload: Workload, query: PredictionQuery, trace: StepTrace, clock: OperatorClock) -> Costs:
    profile = clock.profile
    tokens = query.batch * (1 if workload == "decode" else query.tokens)
    by_part: Counter[str] = Counter()
    by_bound: Counter[str] = Counter()
    from_main = 0.0
    if workload == "decode":  # elsewhere operators of few rows work on what was just made
        from_main = clock.share_from_main(sum(op.moved_bytes * op.times for op in trace.at_work))
    for op in trace.at_work:
        seconds, bound_by = clock.seconds(op, from_main)
        by_part[op.part] += seconds * op.times  # type: ignore[assignment]
        by_bound[bound_by] += seconds * op.times  # type: ignore[assignment]
    body = sum(by_part.values())
    overhead = profile.launch_overhead
    if workload != "train" and profile.launch_overhead_inference is not None:
        overhead = profile.launch_overhead_inference
    launch = 0.0 if overhead is None else trace.launches * overhead.value
    total = body + launch if profile.kind == "cpu" else max(body, launch)
    by_bound["launches"] = launch if profile.kind == "cpu" or launch > body else 0.0  # type: ignore[assignment]
    how = f"{'timings of' if clock.calibrated else 'roofline of'} {profile.title}, {trace.launches} operators"
    traffic = _traffic(trace, profile)
    energy = _energy(trace, profile, total, traffic)
    return Costs(
        workload=workload,
        tokens=tokens,
        time=predicted(total, "s", how),
        tokens_per_s=predicted(tokens / total, "token/s", how),
        part_times={part: predicted(seconds, "s", how) for part, seconds in by_part.items() if seconds},
        attention_time=predicted(by_part["attention"], "s", how),
        launches=trace.launches,
        launch_time=Absent("the profile has no launch overhead")
        if overhead is None
        else predicted(launch, "s", f"{trace.launches} operators x {overhead.value:g} s"),
        bound_by=max(by_bound, key=lambda name: by_bound[name]),
        hardware_flop=predicted(trace.flop, "flop", "traced: every product that runs"),
        traffic=traffic,
        energy=energy,
        energy_per_token=_scaled(energy.total, 1 / tokens, "J/token"),
        carbon_per_token=_carbon(_scaled(energy.total, 1 / tokens, "J/token"), query, "kgCO2e/token"),
    )


def _traffic(trace: StepTrace, profile: HardwareProfile) -> tuple[LevelTraffic, ...]:
    return tuple(
        _level_traffic(trace, inner, outer) for inner, outer in zip(profile.levels, profile.levels[1:], strict=False)
    )


def _level_traffic(trace: StepTrace, inner: MemoryLevel, outer: MemoryLevel) -> LevelTraffic:
    capacity_bytes = inner.capacity_bytes
    moved, bound = Counter[bool](), Counter[bool]()  # of attention layers, and of all else
    for op in trace.at_work:
        found = traffic_of(op, capacity_bytes)
        if found is None:
            none = Absent(f"the tiles of fused attention do not fit into {inner.name} ({capacity_bytes} bytes)")
            return LevelTraffic(
                inner=inner.name, outer=outer.name, moved=none, bound=none, attention_moved=none, attention_bound=none
            )
        in_attention = op.part == "attention"
        moved[in_attention] += op.times * found.moved_bytes  # type: ignore[assignment]
        bound[in_attention] += op.times * found.bound_bytes  # type: ignore[assignment]
    how = f"two-level model, fast memory {inner.name} of {capacity_bytes} bytes"
    return LevelTraffic(
        inner=inner.name,
        outer=outer.name,
        moved=predicted(moved.total(), "byte", f"{how}; each operator by itself"),
        bound=_bound(bound.total(), how),
        attention_moved=predicted(moved[True], "byte", f"{how}; attention layers"),
        attention_bound=_bound(bound[True], how),
    )


def _bound(value: float, how: str) -> Quantity:
    return Quantity(
        value=value,
        unit="byte",
        origin="bound",
        source=f"{how}; sum of each operator's own bound, not of a fused program",
    )


# --- energy -----------------------------------------------------------------------------------------------------------


def _energy(trace: StepTrace, profile: HardwareProfile, seconds: float, traffic: Sequence[LevelTraffic]) -> Energy:
    missing: list[str] = []
    idle = _joules(profile.idle_power, seconds, "idle power x time", "idle_power", missing)
    flop = _flop_energy(trace, profile, missing)
    levels: dict[str, Reading] = {}
    for level, moved in zip(profile.levels[1:], traffic, strict=True):
        if isinstance(moved.moved, Absent):
            levels[level.name] = moved.moved
        else:
            levels[level.name] = _joules(
                level.energy, moved.moved.value, f"bytes from {level.name} x energy of a byte",
                f"energy of level {level.name}", missing,
            )  # fmt: skip
    needed = (idle, flop, levels[profile.main_memory.name])
    absent = [reading for reading in needed if isinstance(reading, Absent)]
    total: Reading
    if absent:
        total = Absent(
            f"the profile of {profile.title} lacks {', '.join(missing)}; give each as {{ value, unit, source }} in a "
            "copy of the profile, or run wattention calibrate on a machine with an energy counter"
        )
    else:
        parts = [reading for reading in (idle, flop, *levels.values()) if isinstance(reading, Quantity)]
        left_out = [name for name, reading in levels.items() if isinstance(reading, Absent)]
        how = "idle power x time + FLOPs x energy of one + bytes x energy of one"
        total = _sum(parts, how + (f"; without the bytes of {', '.join(left_out)}" if left_out else ""))
    return Energy(total=total, idle=idle, flop=flop, levels=levels, missing=tuple(missing))


def _flop_energy(trace: StepTrace, profile: HardwareProfile, missing: list[str]) -> Reading:
    flop: Counter[str] = Counter()
    for op in trace.operators:
        flop[op.dtype] += op.flop * op.times
    parts = [
        _joules(
            profile.flop_energy.get(dtype),
            count,
            f"FLOPs in {dtype} x energy of one",
            f"flop_energy of {dtype}",
            missing,
        )
        for dtype, count in flop.items()
        if count
    ]
    absent = next((part for part in parts if isinstance(part, Absent)), None)
    return absent or _sum([part for part in parts if isinstance(part, Quantity)], "FLOPs x energy of one, by dtype")


def _joules(number: Number | None, amount: float, how: str, name: str, missing: list[str]) -> Reading:
    if number is None:
        missing.append(name)
        return Absent(f"the profile has no {name}")
    return Quantity(
        value=number.value * amount,
        unit="J",
        origin="predicted",
        source=f"{how}; {number.source}",
        low=None if number.low is None and number.high is None else (number.low or number.value) * amount,
        high=None if number.low is None and number.high is None else (number.high or number.value) * amount,
    )


def _sum(parts: Sequence[Quantity], how: str) -> Quantity:
    """Add quantities; where one has a range, so has the sum: all parts at their low and at their high ends."""
    ranged = any(part.low is not None for part in parts)

    def end(of: Callable[[Quantity], float | None]) -> float:
        return math.fsum(part.value if (x := of(part)) is None else x for part in parts)

    return Quantity(
        value=math.fsum(part.value for part in parts),
        unit=parts[0].unit if parts else "J",
        origin="predicted",
        source=how,
        low=end(lambda part: part.low) if ranged else None,
        high=end(lambda part: part.high) if ranged else None,
    )


def _scaled(reading: Reading, factor: float, unit: str, how: str = "") -> Reading:
    if isinstance(reading, Absent):
        return reading
    return reading.mapped(lambda value: value * factor, unit=unit, source=f"{reading.source}{how}")


def _carbon(energy: Reading, query: PredictionQuery, unit: str) -> Reading:
    if query.carbon is None:
        return Absent("no carbon factor was given: it depends on grid and year, e.g. --carbon DE-2023")
    return _scaled(energy, query.carbon.value, unit, f"; x {query.carbon.source}")


def _run_totals(query: PredictionQuery, train: Costs) -> RunTotals:
    assert query.run_tokens is not None
    steps = query.run_tokens / train.tokens
    how = f"; x {steps:.6g} steps"
    energy = _scaled(train.energy.total, steps, "J", how)
    return RunTotals(
        tokens=query.run_tokens,
        steps=steps,
        time=_scaled(train.time, steps, "s", how),
        energy=energy,
        carbon=_carbon(energy, query, "kgCO2e"),
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def predict_memory(trace: StepTrace, query: PredictionQuery, profile: HardwareProfile) -> MemoryPrediction:
    """Return the peak of live tensors of a training step, its parts, and what fits."""
    phase, parts = trace.peak()
    how = f"live tensors traced, peak in the phase: {phase}"
    if query.memory_bytes is not None:
        capacity: Quantity = predicted(query.memory_bytes, "byte", "given")
    else:
        level = profile.main_memory
        capacity = predicted(level.capacity_bytes, "byte", f"{level.name} of {profile.title}: {level.capacity.source}")
    peak = sum(parts.values())
    fits, largest = peak <= capacity.value, largest_batch(trace, capacity.value)
    return MemoryPrediction(
        peak=predicted(peak, "byte", how),
        parts={kind: predicted(size, "byte", how) for kind, size in parts.items()},
        phase=phase,
        capacity=capacity,
        fits=fits,
        # what is traced is more exact than what is told of other batches
        largest_batch=max(largest, query.batch) if fits else min(largest, query.batch - 1),
    )


def largest_batch(trace: StepTrace, capacity_bytes: float) -> int:
    """Return the most sequences whose peak is told to stay within a capacity, 0 where not even one does."""
    if any(line.fixed_bytes > capacity_bytes for line in trace.growth):
        return 0
    most = ((capacity_bytes - line.fixed_bytes) / line.sequence_bytes for line in trace.growth if line.sequence_bytes)
    return math.floor(min(most) + 1e-9)
