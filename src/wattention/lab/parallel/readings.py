"""One reading out of several ranks': what is summed, what is the slowest rank's, and what is counted once a machine.

================================  ==========================================================================
time                              the slowest rank's: windows open after a common barrier
CPU seconds, page faults          the sum: every rank reads its own process tree
peaks of memory                   the worst rank's, and beside it the sum of the ranks' peaks (``sum_of_...``)
energy of a GPU                   of its first rank, every GPU once
energy of packages, memory, SoC   of the first rank of every machine, every machine once
other processes                   of the first rank of every machine, less what its other ranks used
all else                          rank 0's
================================  ==========================================================================

The total of energy is the sum of those domains, and absent when one of them is: nothing is counted twice, and nothing
is lost without a word. Pure functions over phases; nothing here touches a device or a process group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import Phase
from wattention.meters.disturbance import OTHER_SHARE_LIMIT

SUMMED = frozenset({"cpu_s", "cpu_user_s", "cpu_system_s", "minor_faults"})
PEAKS = frozenset(
    {"peak_rss_bytes", "rss_before_bytes", "peak_tensor_bytes"}
    | {"cuda_peak_allocated_bytes", "cuda_peak_reserved_bytes", "cuda_before_bytes"}
)
HIGHEST = frozenset({"gpu_temperature_celsius", "gpu_heat_limited_share", "gpu_power_limited_share"}) | frozenset(
    {"steal_share", "load_1min", "suspended_s"}
)
LOWEST = frozenset({"gpu_clock_hz", "gpu_memory_clock_hz", "gpu_power_limit_w"})


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where one rank sits and which energy counters it reads.

    Args:
        host: the machine's name, for people.
        machine: the machine's identity.
        cores: the machine's logical cores.
        device: identity of the rank's device; ``cpu`` is the machine itself.
        domains: energy domain -> whether it belongs to the total.
        missing: energy domains that cannot be read, with the reason.
    """

    rank: int
    local_rank: int
    host: str
    machine: str
    cores: int
    device: str
    domains: Mapping[str, bool]
    missing: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _Domain:
    """One energy counter of the whole, with the rank that answers for it."""

    label: str
    name: str
    index: int
    in_total: bool


def merge_phases(seats: Sequence[Seat], phases: Sequence[Phase]) -> Phase:
    """Return one phase of the ranks' phases; ``seats`` and ``phases`` in order of rank."""
    assert len(seats) == len(phases), "one phase a rank"
    found: dict[str, Reading] = {}
    for name, own in phases[0].readings.items():
        if _is_energy(name):
            continue
        everyone = [phase.readings.get(name, Absent("this rank has no such reading")) for phase in phases]
        if name in SUMMED:
            found[name] = _combine(seats, everyone, sum, "sum")
        elif name in PEAKS:
            found[name] = _combine(seats, everyone, max, "worst")
            found[f"sum_of_{name}"] = _combine(seats, everyone, sum, "sum of the peaks, which need not coincide,")
        elif name == "time_s":
            found[name] = _combine(seats, everyone, max, "slowest, from a common barrier,")
        elif name in HIGHEST | LOWEST:
            found[name] = _combine(seats, everyone, *((max, "highest") if name in HIGHEST else (min, "lowest")))
        else:
            found[name] = own if isinstance(own, Absent) else replace(own, source=f"rank 0: {own.source}")
    if {"cores_busy", "time_s", "cpu_s"} <= found.keys():
        found["cores_busy"] = _cores_busy(found)
    flags = [{**flag, "message": f"rank {seat.rank}: {flag['message']}"} for seat, flag in _flags(seats, phases)]
    if "other_cpu_share" in found:
        found["other_cpu_share"] = _others(seats, phases)
        flags.extend(_company(found["other_cpu_share"]))
    if any("energy_j" in phase.readings for phase in phases):
        found.update(_energies(seats, phases))
    return Phase(readings=found, samples=phases[0].samples, flags=tuple(flags))


def _is_energy(name: str) -> bool:
    return name.startswith(("energy_", "sampled_energy_"))


def _combine(
    seats: Sequence[Seat], readings: Sequence[Reading], choose: Callable[[list[float]], float], how: str
) -> Reading:
    """Combine one reading of all ranks; one that is absent makes the whole absent."""
    known: list[Quantity] = []
    for seat, reading in zip(seats, readings, strict=True):
        if isinstance(reading, Absent):
            return Absent(f"rank {seat.rank} on {seat.host}: {reading.reason}")
        known.append(reading)
    first = known[0]
    source = f"{how} of {len(known)} ranks; {first.source}"
    return Quantity(value=choose([one.value for one in known]), unit=first.unit, origin=first.origin, source=source)


def _cores_busy(found: Mapping[str, Reading]) -> Reading:
    cpu, time = found["cpu_s"], found["time_s"]
    if isinstance(cpu, Absent):
        return cpu
    if isinstance(time, Absent) or time.value <= 0:
        return Absent("the interval is empty")
    source = f"CPU seconds over elapsed seconds; {cpu.source}"
    return Quantity(value=cpu.value / time.value, unit="core", origin="measured", source=source)


def _flags(seats: Sequence[Seat], phases: Sequence[Phase]) -> list[tuple[Seat, Mapping[str, str]]]:
    """Return all flags but those of company, which took the neighbouring ranks for strangers."""
    return [
        (seat, flag)
        for seat, phase in zip(seats, phases, strict=True)
        for flag in phase.flags
        if flag["kind"] != "company"
    ]


def _by_machine(seats: Sequence[Seat]) -> list[list[int]]:
    """Return the positions of the ranks of every machine, the lowest local rank first."""
    machines: dict[str, list[int]] = {}
    for index, seat in enumerate(seats):
        machines.setdefault(seat.machine, []).append(index)
    return [sorted(members, key=lambda index: seats[index].local_rank) for members in machines.values()]


def _others(seats: Sequence[Seat], phases: Sequence[Phase]) -> Reading:
    """Return the share of the cores that neither rank used, of the machine where it is largest."""
    shares: list[Quantity] = []
    for first, *rest in _by_machine(seats):
        share, time = phases[first].readings["other_cpu_share"], phases[first].readings["time_s"]
        if isinstance(share, Absent):
            return Absent(f"rank {seats[first].rank} on {seats[first].host}: {share.reason}")
        assert isinstance(time, Quantity), "a share of the machine needs a time"
        used_s = 0.0
        for index in rest:
            cpu = phases[index].readings["cpu_s"]
            if isinstance(cpu, Absent):
                return Absent(f"rank {seats[index].rank} on {seats[index].host}: {cpu.reason}")
            used_s += cpu.value
        ours = used_s / (time.value * seats[first].cores)
        low, high = (max(0.0, (end if end is not None else share.value) - ours) for end in (share.low, share.high))
        source = f"{share.source}; less the machine's other ranks"
        shares.append(replace(share, value=max(0.0, share.value - ours), low=low, high=high, source=source))
    return max(shares, key=lambda share: share.value)


def _company(share: Reading) -> list[dict[str, str]]:
    if isinstance(share, Absent) or share.low is None or share.low <= OTHER_SHARE_LIMIT:
        return []
    message = f"other processes used {share.value:.0%} of the machine's cores (limit {OTHER_SHARE_LIMIT:.0%})"
    return [{"kind": "company", "message": message}]


def _domains(seats: Sequence[Seat]) -> list[_Domain]:
    """Return every energy domain once, with the rank that answers for it."""
    chosen: dict[tuple[str, str], tuple[int, str]] = {}
    for members in _by_machine(seats):
        for index in members:
            seat = seats[index]
            for name in seat.domains:
                # a GPU is known by its device, since two ranks may see two GPUs under one number
                identity = seat.device if name.startswith("gpu") else name
                chosen.setdefault((seat.machine, identity), (index, name))
    names = [name for _, name in chosen.values()]
    return [
        _Domain(
            label=name if names.count(name) == 1 else f"{name}_of_rank{seats[index].rank}",
            name=name,
            index=index,
            in_total=seats[index].domains[name],
        )
        for index, name in chosen.values()
    ]


def _energies(seats: Sequence[Seat], phases: Sequence[Phase]) -> dict[str, Reading]:
    """Return the energy of every domain, each once, and their sum."""
    domains = _domains(seats)
    found: dict[str, Reading] = {}
    for domain in domains:
        for pattern in ("energy_{}_j", "sampled_energy_{}_j", "energy_gap_{}"):
            reading = phases[domain.index].readings.get(pattern.format(domain.name))
            if reading is not None:
                found[pattern.format(domain.label)] = reading
    found["energy_j"] = _total(seats, phases, domains, found)
    return found


def _total(
    seats: Sequence[Seat], phases: Sequence[Phase], domains: Sequence[_Domain], found: Mapping[str, Reading]
) -> Reading:
    if not domains:
        return phases[0].readings["energy_j"]  # no counter anywhere: the reason, or nothing to sum
    parts: list[Quantity] = []
    for domain in domains:
        if not domain.in_total:
            continue
        part = found.get(f"energy_{domain.label}_j", Absent("the window gave none"))
        if isinstance(part, Absent):
            return Absent(f"the sum lacks {domain.label}: {part.reason}")
        parts.append(part)
    # a rank whose own counters could not be opened at all has no domain, and would silently be left out
    for seat, phase in zip(seats, phases, strict=True):
        own = phase.readings.get("energy_j", Absent("the window gave none"))
        if not seat.domains and isinstance(own, Absent):
            return Absent(f"the sum lacks rank {seat.rank} on {seat.host}: {own.reason}")
    if not parts:
        return Absent("no domain that could be summed")
    unread = {f"{name} ({why})": None for seat in seats for name, why in seat.missing.items()}
    known = all(part.low is not None and part.high is not None for part in parts)
    summed = ", ".join(domain.label for domain in domains if domain.in_total)
    lacking = f"; not in it: {'; '.join(unread)}" if unread else ""
    return Quantity(
        value=sum(part.value for part in parts),
        unit="J",
        origin="measured",
        source=f"sum over {len(seats)} ranks, every device once: {summed}{lacking}",
        low=sum(part.low or 0.0 for part in parts) if known else None,
        high=sum(part.high or 0.0 for part in parts) if known else None,
    )
