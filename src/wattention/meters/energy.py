"""Energy between two instants, from the counters of the devices: one reading a domain, and their sum.

::

    E = c(end) - c(start),      low, high = E -+ sqrt(window^2 + shared^2)        95 %

The interval holds the whole uncertainty: what is this window's own (the counter moves in steps, about 0.1 s on many
GPUs and 1 ms for RAPL) and what every window of the host shares (the sensor's class). Ratios within one host must not
count the shared part twice, so the parts are readings of their own, ``uncertainty_window_j``, ``uncertainty_shared_j``
and ``uncertainty_offset_j`` (with the domain's name before ``_j`` for one domain); see core/energy_uncertainty.py.

The step is measured when the meter opens. A window shorter than max(5 s, 50 steps) is *not measurable*, never 0. A
counter that wrapped is mended by its known range wherever one answer only is possible; one that went backwards, stood
still, vanished, or claims more than its kind can draw gives an absence and a typed warning. The sum is absent when a
domain that should be in it is: a total that silently lost a device would be a wrong number.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattention.core.energy_uncertainty import EnergyUncertainty, sum_uncertainty
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, MeterError, Sample
from wattention.meters.clock import Clock, SystemClock
from wattention.meters.sensor_class import find_class
from wattention.meters.uncertainty import UNSEEN_STEP_S, energy_uncertainty
from wattention.meters.zeus_layer import Domain, Found, find_domains

SHORTEST_WINDOW_S = 5.0
STEPS_IN_A_WINDOW = 50
PROBE_S = 1.0
"""A counter is watched for this long, and for up to ``PATIENCE`` times as long if it hardly moved."""
PATIENCE = UNSEEN_STEP_S / PROBE_S
PROBE_STEPS = 8
NEVER_MEASURED = "fans, power supply, disks, network and mainboard"


@dataclass(frozen=True, kw_only=True)
class CounterStep:
    """How a counter moves: median and longest seconds between moves, joules of the largest move."""

    step_s: float
    longest_step_s: float
    step_j: float


def measure_counter_step(
    read_j: Callable[[], float], *, now_s: Callable[[], float] = time.perf_counter, budget_s: float | None = None
) -> CounterStep | None:
    """Watch a counter until it has moved a few times; None when it moved less than three times within the patience."""
    budget_s = PROBE_S if budget_s is None else budget_s
    start_s = now_s()
    last = read_j()
    moves: list[tuple[float, float]] = []
    while len(moves) <= PROBE_STEPS:
        value, at_s = read_j(), now_s()
        if value != last:
            moves.append((at_s, abs(value - last)))
            last = value
        if at_s - start_s >= budget_s * (1.0 if len(moves) >= 3 else PATIENCE):
            break
    if len(moves) < 3:
        return None
    # The wait for the first move began in the middle of a step, so periods count from that move on.
    periods = [later[0] - earlier[0] for earlier, later in itertools.pairwise(moves)]
    return CounterStep(
        step_s=statistics.median(periods), longest_step_s=max(periods), step_j=max(size for _, size in moves)
    )


class Counters:
    """The opened counters of some domains.

    Args:
        found: the domains, and why others are missing.
        clock: stamps every read; the machine's own unless given.

    Errors: MeterError when no domain can be read.
    """

    def __init__(self, found: Found, *, clock: Clock | None = None) -> None:
        self._clock: Clock = clock if clock is not None else SystemClock()
        missing, domains, facts = dict(found.missing), [], {}
        for domain in found.domains:
            try:
                facts[domain.name] = _facts(domain, self._clock)
            except (MeterError, OSError) as error:
                missing[domain.name] = str(error)  # listed as a counter, and refuses to be read
                continue
            domains.append(domain)
        if not domains:
            raise MeterError("; ".join(missing.values()))
        self._domains = tuple(domains)
        self.facts: Facts = {"domains": facts, "missing": missing}

    def arm(self) -> None:
        """Nothing to reset: counters are read as differences."""

    def start(self) -> Sample:
        """Read all domains in order."""
        return {domain.name: self._read(domain) for domain in self._domains}

    def stop(self) -> Sample:
        """Read all domains in mirrored order."""
        return {domain.name: self._read(domain) for domain in reversed(self._domains)}

    def _read(self, domain: Domain) -> dict[str, Any]:
        try:
            return {"j": domain.read_j(), "at_ns": self._clock.monotonic_ns()}
        except (MeterError, OSError) as error:
            return {"trouble": str(error)}  # the other domains live on

    def close(self) -> None:
        """The zeus layer keeps its devices for the life of the process."""


def _facts(domain: Domain, clock: Clock) -> dict[str, Any]:
    step = measure_counter_step(domain.read_j, now_s=lambda: clock.monotonic_ns() / 1e9)
    return {
        "device": domain.device,
        "counter": domain.counter,
        "wrap_j": domain.wrap_j,
        "in_total": domain.in_total,
        "sensor_class": domain.sensor_class,
        "step_s": step.step_s if step else None,
        "longest_step_s": step.longest_step_s if step else None,
        "step_j": step.step_j if step else None,
    }


def shortest_window_s(step_s: float | None) -> float:
    """Return the shortest window in which a counter with this step says anything."""
    return max(SHORTEST_WINDOW_S, STEPS_IN_A_WINDOW * (step_s or 0.0))


def needed_window_s(facts: Facts) -> float:
    """Return the shortest window that every domain of an opened energy meter can measure."""
    return max(shortest_window_s(one["step_s"]) for one in facts["domains"].values())


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    readings: dict[str, Reading] = {}
    flags: list[Flag] = []
    parts: dict[str, EnergyUncertainty] = {}
    for name, about in facts["domains"].items():
        reading, found, part = _difference(name, about, before.get(name, {}), after.get(name, {}), interval)
        readings[f"energy_{name}_j"] = reading
        flags.extend(found)
        if part is not None:
            parts[name] = part
            readings.update(part.readings(name))
    readings["energy_j"] = _total(facts, readings, parts)
    if isinstance(readings["energy_j"], Quantity):
        readings.update(sum_uncertainty(parts[name] for name in _summed(facts)).readings())
    return Interpretation(readings=readings, flags=tuple(flags))


def _difference(
    name: str, about: dict[str, Any], before: dict[str, Any], after: dict[str, Any], interval: Interval
) -> tuple[Reading, list[Flag], EnergyUncertainty | None]:
    """Return one domain's energy with its uncertainty, or why there is none, with its warnings."""
    source = f"{about['counter']}, {about['device']}"
    flags: list[Flag] = []

    def refuse(kind: str, what: str) -> tuple[Reading, list[Flag], None]:
        return Absent(f"{source}: {what}"), [*flags, Flag(kind=kind, message=f"{name}: {what}")], None

    for sample in (before, after):
        if "j" not in sample:
            return refuse("counter_lost", sample.get("trouble", "the counter gave no sample"))
    elapsed_s = (after["at_ns"] - before["at_ns"]) / 1e9
    limit_w = find_class(about.get("sensor_class")).limit_w
    change_j = after["j"] - before["j"]
    energy_j = _unwrapped(change_j, about["wrap_j"], limit_w * elapsed_s)
    if energy_j != change_j:
        message = f"{name}: wrapped at {about['wrap_j']:.6g} J, mended"
        flags.append(Flag(kind="counter_wrapped", message=message))
    if energy_j < 0:
        return refuse("counter_backwards", f"went backwards by {-energy_j:.6g} J: the device or its driver was reset")
    shortest_s = shortest_window_s(about["step_s"])
    if elapsed_s < shortest_s:
        step = f"steps every {about['step_s']:.3g} s" if about["step_s"] else "showed no step when the run began"
        return (
            Absent(
                f"not measurable: the window lasted {elapsed_s:.3g} s, and {source} {step}; repeat the work for at "
                f"least {shortest_s:.3g} s"
            ),
            flags,
            None,
        )
    if energy_j == 0:
        return refuse("counter_stalled", f"stood still for {elapsed_s:.3g} s")
    if energy_j > limit_w * elapsed_s:
        return refuse(
            "implausible_power",
            f"claims {energy_j / elapsed_s:.4g} W, above {limit_w:g} W: it was reset, or its unit is wrong",
        )
    part = energy_uncertainty(about, energy_j, elapsed_s, apart_s=abs(elapsed_s - interval.elapsed_s))
    return _with_range(energy_j, part, f"{source}; {_composition(about, part)}"), flags, part


def _unwrapped(change_j: float, wrap_j: float | None, most_j: float) -> float:
    """Return the energy behind a counter's change, ``most_j`` being the most that can have been used.

    zeus mends wraps too, but learns of one up to a second late, so that a change may lack a range or have one too many.
    Where less than a range can have been used, the remainder is the only possible answer and settles both.
    """
    if wrap_j is None or 0 <= change_j <= most_j:
        return change_j
    if most_j < wrap_j:
        return change_j % wrap_j
    return change_j + wrap_j if change_j < 0 else change_j


def _composition(about: Mapping[str, Any], part: EnergyUncertainty) -> str:
    step = "a counter whose step was not seen" if about["step_s"] is None else f"steps of {about['step_s']:.3g} s"
    sensor = find_class(about.get("sensor_class")).title
    return f"range 95 %: {part.window_j:.3g} J of this window ({step}), {part.shared_j:.3g} J shared ({sensor})"


def _with_range(energy_j: float, part: EnergyUncertainty, source: str) -> Quantity:
    return Quantity(
        value=energy_j,
        unit="J",
        origin="measured",
        source=source,
        low=max(0.0, energy_j - part.half_j),
        high=energy_j + part.half_j,
    )


def _summed(facts: Facts) -> list[str]:
    return [name for name, about in facts["domains"].items() if about["in_total"]]


def _total(facts: Facts, readings: Mapping[str, Reading], uncertainties: Mapping[str, EnergyUncertainty]) -> Reading:
    wanted = _summed(facts)
    energy_j = 0.0
    for name in wanted:
        part = readings[f"energy_{name}_j"]
        if isinstance(part, Absent):
            return Absent(f"the sum lacks {name}: {part.reason}")
        energy_j += part.value
    if not wanted:
        return Absent("no domain that could be summed")
    unread = [f"{name} ({why})" for name, why in facts["missing"].items()]
    if not any(name.startswith(("dram", "soc", "psys")) for name in wanted):
        unread.append("memory of the host")
    whole = sum_uncertainty(uncertainties[name] for name in wanted)
    source = (
        f"sum of {', '.join(wanted)}; not in it: {'; '.join([*unread, NEVER_MEASURED])}; range 95 %: "
        f"{whole.window_j:.3g} J of this window, {whole.shared_j:.3g} J shared by all windows of the host"
    )
    return _with_range(energy_j, whole, source)


def _available(device: str) -> Absent | None:
    try:
        found = find_domains(device)
    except MeterError as error:
        return Absent(str(error))
    return None if found.domains else Absent("; ".join(dict.fromkeys(found.missing.values())))


METER = Meter(
    name="energy",
    title="energy counters of the devices",
    readings=("energy_j",),
    unit="J",
    kind="counter",
    origin="measured",
    available=_available,
    open=lambda device: Counters(find_domains(device)),
    interpret=_interpret,
    closeness=70,
)
