"""Company on the machine: CPU time of everything that is not this process tree, and time stolen by the hypervisor.

::

    others = d(busy of all cores, /proc/stat) - d(CPU time of this tree)        share = others / (elapsed x cores)
    steal  = d(steal) / (elapsed x cores)

Two spinning threads beside one busy neighbour can cost seven times the seconds, so the share stands beside every
timing. A window is flagged, never dropped and never corrected, when

* other processes used more than 5 % of the machine (``OTHER_SHARE_LIMIT``), beyond what ticks can resolve,
* the hypervisor took more than 1 % of its core time (``STEAL_SHARE_LIMIT``),
* heat held a core back (the kernel counts such events; a laptop that warms up runs its later cells slower), or
* the container's CPU quota stopped this control group for more than 1 % of the window (``QUOTA_SHARE_LIMIT``).

/proc/stat counts in ticks of 10 ms: a share is uncertain by one tick a core, and a window under 0.1 s has none.
In a container it counts the whole host, so the neighbours of other containers are seen too. proc(5).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from wattention.core.quantities import Absent, Quantity, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, Sample
from wattention.meters.process_tree import ProcessTree, grown, system_s, user_s

OTHER_SHARE_LIMIT = 0.05
STEAL_SHARE_LIMIT = 0.01
QUOTA_SHARE_LIMIT = 0.01
SHORTEST_S = 0.1
STAT = Path("/proc/stat")
CPU_FOLDER = Path("/sys/devices/system/cpu")
QUOTA_STAT = Path("/sys/fs/cgroup/cpu.stat")


class _Company:
    def __init__(self, device: str) -> None:
        self.facts: Facts = {"cores": os.cpu_count() or 1, "tick_s": 1 / os.sysconf("SC_CLK_TCK")}
        self._tree = ProcessTree()

    def arm(self) -> None:
        """Nothing to reset."""

    def start(self) -> Sample:
        """Read the machine next to its share of ours."""
        gauges = _gauges()
        return {**gauges, **self._tree.read_before(), **_machine(self.facts["tick_s"])}

    def stop(self) -> Sample:
        """Read in mirrored order."""
        machine = _machine(self.facts["tick_s"])
        return {**machine, **self._tree.read_after(), **_gauges()}

    def close(self) -> None:
        """Nothing to give back."""


def _machine(tick_s: float) -> Sample:
    # user nice system idle iowait irq softirq steal guest guest_nice; guest time is inside user already
    ticks = [int(word) for word in STAT.read_text().split("\n", 1)[0].split()[1:]]
    busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]
    return {"busy_s": busy * tick_s, "steal_s": ticks[7] * tick_s}


def _gauges() -> Sample:
    clocks = []
    for path in CPU_FOLDER.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        try:
            clocks.append(int(path.read_text()) * 1e3)
        except (OSError, ValueError):
            continue  # a core that went offline
    return {
        "load_1min": os.getloadavg()[0],
        "core_clock_hz": sum(clocks) / len(clocks) if clocks else None,
        "heat_events": _heat_events(),
        "quota_held_s": _quota_held_s(),
    }


def _heat_events() -> int | None:
    """Times that heat held a core or its package back since boot, or None where the kernel does not count them."""
    counts = []
    for path in CPU_FOLDER.glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        try:
            counts.append(int(path.read_text()))
        except (OSError, ValueError):
            continue
    return sum(counts) if counts else None


def _quota_held_s() -> float | None:
    """Seconds for which a CPU quota stopped this control group, or None where there is none (cgroup version 2)."""
    try:
        fields = dict(line.split() for line in QUOTA_STAT.read_text().splitlines())
        return int(fields["throttled_usec"]) / 1e6
    except (OSError, ValueError, KeyError):
        return None


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    readings: dict[str, Reading] = {
        "load_1min": measured(after["load_1min"], "process", "load average over 1 minute, after the window")
    }
    clock = after["core_clock_hz"]
    readings["core_clock_hz"] = (
        Absent(f"no scaling_cur_freq under {CPU_FOLDER}: virtual machines do not show their cores' clock")
        if clock is None
        else measured(clock, "Hz", "mean of scaling_cur_freq over the cores, after the window")
    )
    flags = _held_back(before, after, interval)
    if interval.elapsed_s < SHORTEST_S:
        reason = f"a window of {interval.elapsed_s:.3g} s is too short for /proc/stat, which counts in 10 ms ticks"
        readings["other_cpu_share"] = readings["steal_share"] = Absent(reason)
        return Interpretation(readings=readings, flags=tuple(flags))
    room_s = interval.elapsed_s * facts["cores"]
    resolution = facts["tick_s"] / interval.elapsed_s
    others_s = grown(before, after, "busy_s") - user_s(before, after) - system_s(before, after)
    share = min(1.0, max(0.0, others_s / room_s))
    steal = max(0.0, grown(before, after, "steal_s") / room_s)
    readings["other_cpu_share"] = Quantity(
        value=share,
        unit="1",
        origin="measured",
        source="/proc/stat busy time minus this process tree, over elapsed x cores; range: one tick a core",
        low=max(0.0, share - resolution),
        high=min(1.0, share + resolution),
    )
    readings["steal_share"] = measured(steal, "1", "/proc/stat steal time over elapsed x cores")
    if share - resolution > OTHER_SHARE_LIMIT:
        flags.append(
            Flag(
                kind="company",
                message=f"other processes used {share:.0%} of the machine's cores (limit {OTHER_SHARE_LIMIT:.0%})",
            )
        )
    if steal - resolution > STEAL_SHARE_LIMIT:
        flags.append(
            Flag(
                kind="steal",
                message=f"the hypervisor took {steal:.1%} of the core time (limit {STEAL_SHARE_LIMIT:.0%})",
            )
        )
    return Interpretation(readings=readings, flags=tuple(flags))


def _held_back(before: Sample, after: Sample, interval: Interval) -> list[Flag]:
    """Flag heat and quotas; recordings made before these were read have neither."""
    flags = []
    events = _grown(before, after, "heat_events")
    if events > 0:
        flags.append(Flag(kind="cpu_heat", message=f"heat held cores back {events:.0f} times in the window"))
    held_s = _grown(before, after, "quota_held_s")
    if held_s > QUOTA_SHARE_LIMIT * interval.elapsed_s:
        message = (
            f"the container's CPU quota stopped its processes for {held_s:.3g} s ({QUOTA_STAT.parent / 'cpu.max'})"
        )
        flags.append(Flag(kind="cpu_quota", message=message))
    return flags


def _grown(before: Sample, after: Sample, key: str) -> float:
    """Growth of a counter that may not exist; 0 then."""
    if before.get(key) is None or after.get(key) is None:
        return 0.0
    return grown(before, after, key)


def _available(device: str) -> Absent | None:
    if sys.platform != "linux":
        return Absent(f"{STAT} is Linux only: close other programs, because company cannot be seen on {sys.platform}")
    if not STAT.is_file():
        return Absent(f"{STAT} cannot be read: mount /proc in this container")
    return None


METER = Meter(
    name="disturbance",
    title="other processes and stolen time",
    readings=("other_cpu_share", "steal_share", "load_1min", "core_clock_hz"),
    unit="1",
    kind="counter",
    origin="measured",
    available=_available,
    open=_Company,
    interpret=_interpret,
    closeness=80,
)
