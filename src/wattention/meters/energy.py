"""Energy between two instants, from the counters of the devices: one reading a domain, and their sum.

A counter moves in steps (about 0.1 s on many GPUs, 1 ms for RAPL), so a difference is uncertain by one step::

    E = c(end) - c(start),   E - step <= true energy <= E + step

The step is measured when the meter opens. A window shorter than max(5 s, 50 steps) is *not measurable*, never 0.
A counter that wrapped is mended once by its known range; one that went backwards, stood still, vanished, or claims
more than ``MAX_POWER_W`` gives an absence and a typed warning. The sum is absent when a domain that should be in it
is: a total that silently lost a device would be a wrong number.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, MeterError, Sample
from wattention.meters.zeus_layer import Domain, find_domains

SHORTEST_WINDOW_S = 5.0
STEPS_IN_A_WINDOW = 50
MAX_POWER_W = 5_000.0
PROBE_S = 1.0
PROBE_STEPS = 8
NEVER_MEASURED = "fans, power supply, disks, network and mainboard"


def measure_counter_step(
    read_j: Callable[[], float], *, now_s: Callable[[], float] = time.perf_counter, budget_s: float | None = None
) -> tuple[float, float] | None:
    """Watch a counter until it has moved a few times: (seconds between moves, joules of the largest move).

    The period is the median over the moves. None when it moved less than twice within the budget.
    """
    deadline = now_s() + (PROBE_S if budget_s is None else budget_s)
    last = read_j()
    moves: list[tuple[float, float]] = []
    while len(moves) <= PROBE_STEPS:
        value, at_s = read_j(), now_s()
        if value != last:
            moves.append((at_s, abs(value - last)))
            last = value
        if at_s >= deadline:
            break
    if len(moves) < 3:
        return None
    # The wait for the first move began in the middle of a step, so periods count from that move on.
    periods = [later[0] - earlier[0] for earlier, later in itertools.pairwise(moves)]
    return statistics.median(periods), max(size for _, size in moves)


class _Counters:
    def __init__(self, device: str) -> None:
        found = find_domains(device)
        missing, domains, facts = dict(found.missing), [], {}
        for domain in found.domains:
            try:
                facts[domain.name] = _facts(domain)
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
        return {domain.name: _read(domain) for domain in self._domains}

    def stop(self) -> Sample:
        """Read all domains in mirrored order."""
        return {domain.name: _read(domain) for domain in reversed(self._domains)}

    def close(self) -> None:
        """The zeus layer keeps its devices for the life of the process."""


def _facts(domain: Domain) -> dict[str, Any]:
    step = measure_counter_step(domain.read_j)
    return {
        "device": domain.device,
        "counter": domain.counter,
        "wrap_j": domain.wrap_j,
        "in_total": domain.in_total,
        "step_s": step[0] if step else None,
        "step_j": step[1] if step else None,
    }


def _read(domain: Domain) -> dict[str, Any]:
    try:
        return {"j": domain.read_j(), "at_ns": time.perf_counter_ns()}
    except (MeterError, OSError) as error:
        return {"trouble": str(error)}  # the other domains live on


def shortest_window_s(step_s: float | None) -> float:
    """Return the shortest window in which a counter with this step says anything."""
    return max(SHORTEST_WINDOW_S, STEPS_IN_A_WINDOW * (step_s or 0.0))


def needed_window_s(facts: Facts) -> float:
    """Return the shortest window that every domain of an opened energy meter can measure."""
    return max(shortest_window_s(one["step_s"]) for one in facts["domains"].values())


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    readings: dict[str, Reading] = {}
    flags: list[Flag] = []
    for name, about in facts["domains"].items():
        reading, found = _difference(name, about, before.get(name, {}), after.get(name, {}))
        readings[f"energy_{name}_j"] = reading
        flags.extend(found)
    readings["energy_j"] = _total(facts, readings)
    return Interpretation(readings=readings, flags=tuple(flags))


def _difference(
    name: str, about: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> tuple[Reading, list[Flag]]:
    """Return one domain's energy, or why there is none, with its warnings."""
    source = f"{about['counter']}, {about['device']}"

    def refuse(kind: str, what: str) -> tuple[Reading, list[Flag]]:
        return Absent(f"{source}: {what}"), [Flag(kind=kind, message=f"{name}: {what}")]

    for sample in (before, after):
        if "j" not in sample:
            return refuse("counter_lost", sample.get("trouble", "the counter gave no sample"))
    elapsed_s = (after["at_ns"] - before["at_ns"]) / 1e9
    energy_j, flags = after["j"] - before["j"], []
    if energy_j < 0 and about["wrap_j"] is not None:
        energy_j += about["wrap_j"]
        flags.append(Flag(kind="counter_wrapped", message=f"{name}: wrapped at {about['wrap_j']:.6g} J, mended"))
    if energy_j < 0:
        return refuse("counter_backwards", f"went backwards by {-energy_j:.6g} J: the device or its driver was reset")
    shortest_s = shortest_window_s(about["step_s"])
    if elapsed_s < shortest_s:
        step = f"steps every {about['step_s']:.3g} s" if about["step_s"] else "showed no step when the run began"
        return Absent(
            f"not measurable: the window lasted {elapsed_s:.3g} s, and {source} {step}; repeat the work for at least "
            f"{shortest_s:.3g} s"
        ), flags
    if energy_j == 0:
        return refuse("counter_stalled", f"stood still for {elapsed_s:.3g} s")
    if energy_j > MAX_POWER_W * elapsed_s:
        return refuse("implausible_power", f"claims {energy_j / elapsed_s:.4g} W, above {MAX_POWER_W:g} W")
    step_j = about["step_j"]
    return Quantity(
        value=energy_j,
        unit="J",
        origin="measured",
        source=source if step_j is None else f"{source}; range: one step of the counter ({step_j:.3g} J)",
        low=None if step_j is None else max(0.0, energy_j - step_j),
        high=None if step_j is None else energy_j + step_j,
    ), flags


def _total(facts: Facts, readings: dict[str, Reading]) -> Reading:
    wanted = [name for name, about in facts["domains"].items() if about["in_total"]]
    parts: list[Quantity] = []
    for name in wanted:
        part = readings[f"energy_{name}_j"]
        if isinstance(part, Absent):
            return Absent(f"the sum lacks {name}: {part.reason}")
        parts.append(part)
    if not parts:
        return Absent("no domain that could be summed")
    unread = [f"{name} ({why})" for name, why in facts["missing"].items()]
    if not any(name.startswith(("dram", "soc", "psys")) for name in wanted):
        unread.append("memory of the host")
    known = all(part.low is not None and part.high is not None for part in parts)
    return Quantity(
        value=sum(part.value for part in parts),
        unit="J",
        origin="measured",
        source=f"sum of {', '.join(wanted)}; not in it: {'; '.join([*unread, NEVER_MEASURED])}",
        low=sum(part.low or 0.0 for part in parts) if known else None,
        high=sum(part.high or 0.0 for part in parts) if known else None,
    )


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
    open=_Counters,
    interpret=_interpret,
    closeness=70,
)
