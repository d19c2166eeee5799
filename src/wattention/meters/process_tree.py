"""CPU time of this process and its descendants, as raw samples.

This process and the children it has waited for come from getrusage, exact to microseconds in their sum (the split is
sampled by the kernel's tick); living descendants come from /proc by way of psutil, in ticks of 10 ms.
"""

from __future__ import annotations

import importlib
import resource
from pathlib import Path
from typing import Any

from wattention.meters.base import Sample

SOURCE = "getrusage (process and reaped children) and /proc (living descendants)"


class ProcessTree:
    """Reads the CPU time of a process tree; walking /proc is kept on the far side of the work."""

    def __init__(self) -> None:
        psutil: Any = importlib.import_module("psutil")
        self._process = psutil.Process()
        self._gone = (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess)

    def read_before(self) -> Sample:
        """Read the descendants, then this process last."""
        descendants = self._descendants()
        return {**descendants, **_own()}

    def read_after(self) -> Sample:
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


def user_s(before: Sample, after: Sample) -> float:
    """User seconds of the tree between two samples."""
    return grown(before, after, "user_s") + grown(before, after, "living_user_s")


def system_s(before: Sample, after: Sample) -> float:
    """System seconds of the tree between two samples."""
    return grown(before, after, "system_s") + grown(before, after, "living_system_s")


def grown(before: Sample, after: Sample, key: str) -> float:
    """Difference of one counter between two samples."""
    return float(after[key]) - float(before[key])


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
