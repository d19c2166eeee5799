"""CPU seconds of this process and all its descendants, split into user and system time, with minor page faults.

The machine's busy time says nothing about one program; this is the tree's own time. This process and the children it
has waited for come from getrusage, exact to microseconds in their sum (the split is sampled by the kernel's tick);
living descendants come from /proc by way of psutil, in ticks of 10 ms::

    CPU s = d(self) + d(reaped children) + d(living descendants)        cores busy = CPU s / elapsed s

A child that lives at the first read and has been reaped at the second moves from the third term to the second with
all its time, so the sum stays true. A grandchild whose parent died without waiting for it is lost to the tree.
Minor faults are pages the kernel had to hand out and zero: with large fresh tensors that can be 40 % of a step.
"""

from __future__ import annotations

import importlib
import resource
from pathlib import Path
from typing import Any

from wattention.core.quantities import Absent, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, Sample

SOURCE = "getrusage (process and reaped children) and /proc (living descendants)"


class _CpuTimes:
    def __init__(self, device: str) -> None:
        psutil: Any = importlib.import_module("psutil")
        self.facts: Facts = {"tick_s": 0.01, "logical_cores": psutil.cpu_count(), "source": SOURCE}
        self._process = psutil.Process()
        self._gone = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)

    def arm(self) -> None:
        """Nothing to reset: counters are read as differences."""

    def start(self) -> Sample:
        """Read the descendants, then this process last: walking /proc is our own work and not the step's."""
        descendants = self._descendants()
        return {**descendants, **_own()}

    def stop(self) -> Sample:
        """Read this process first, then its descendants."""
        own = _own()
        return {**own, **self._descendants()}

    def _descendants(self) -> Sample:
        user = system = 0.0
        faults: int | None = 0
        count = 0
        for child in self._process.children(recursive=True):
            try:
                times = child.cpu_times()
            except self._gone:
                continue  # it ended just now: getrusage has it from its parent, or will
            count += 1
            user += times.user + getattr(times, "children_user", 0.0)
            system += times.system + getattr(times, "children_system", 0.0)
            more = _minor_faults(child.pid)
            faults = None if faults is None or more is None else faults + more
        return {"living_user_s": user, "living_system_s": system, "living_faults": faults, "living": count}

    def close(self) -> None:
        """Nothing to give back."""


def _own() -> Sample:
    own, reaped = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "user_s": own.ru_utime + reaped.ru_utime,
        "system_s": own.ru_stime + reaped.ru_stime,
        "faults": own.ru_minflt + reaped.ru_minflt,
    }


def _minor_faults(pid: int) -> int | None:
    """Minor faults of a process and its reaped children, or None where /proc does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rfind(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return int(fields[7]) + int(fields[8])


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    user_s = _grown(before, after, "user_s") + _grown(before, after, "living_user_s")
    system_s = _grown(before, after, "system_s") + _grown(before, after, "living_system_s")
    source = str(facts["source"])
    if user_s + system_s < 0:
        reason = "a descendant ended without being waited for, and took its CPU time with it"
        readings: dict[str, Reading] = dict.fromkeys(METER.readings, Absent(reason))
        return Interpretation(readings=readings, flags=(Flag(kind="counter_backwards", message=reason),))
    readings = {
        "cpu_s": measured(user_s + system_s, "s", source),
        "cpu_user_s": measured(user_s, "s", source),
        "cpu_system_s": measured(system_s, "s", source),
    }
    if interval.elapsed_s > 0:
        cores = (user_s + system_s) / interval.elapsed_s
        readings["cores_busy"] = measured(cores, "core", f"CPU seconds over elapsed seconds; {source}")
    else:
        readings["cores_busy"] = Absent("the interval is empty")
    if before["living_faults"] is None or after["living_faults"] is None:
        readings["minor_faults"] = Absent("page faults of the descendants cannot be read on this system")
    else:
        faults = _grown(before, after, "faults") + _grown(before, after, "living_faults")
        readings["minor_faults"] = measured(faults, "fault", source)
    return Interpretation(readings=readings)


def _grown(before: Sample, after: Sample, key: str) -> float:
    return float(after[key]) - float(before[key])


METER = Meter(
    name="cpu",
    title="CPU time of the process tree",
    readings=("cpu_s", "cpu_user_s", "cpu_system_s", "cores_busy", "minor_faults"),
    unit="s",
    kind="counter",
    origin="measured",
    available=lambda device: None,
    open=_CpuTimes,
    interpret=_interpret,
    closeness=100,
)
