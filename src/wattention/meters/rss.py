"""Peak resident memory of this process: the kernel's own high-water mark, reset before each window.

The kernel keeps the mark (VmHWM in /proc/self/status) exactly where it grows, so no peak is too short for it, as it
would be for a sampler. Writing ``5`` to /proc/self/clear_refs sets the mark back to what is resident now (proc(5)).
Where that is not permitted, only the mark since the process began is left (getrusage): it is this window's peak if it
rose inside the window, and otherwise nothing is known but a limit, which the reason states.

Resident memory counts pages of libraries, code and allocator caches too: compare it within one machine and allocator
setting. The peak of live tensors (tensor_memory.py) is the number that belongs to the algorithm.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from wattention.core.quantities import Absent, Reading, measured
from wattention.meters.base import Facts, Interpretation, Interval, Meter, MeterError, Sample

PROC = Path("/proc/self")


class _ResidentMemory:
    def __init__(self, device: str) -> None:
        self.facts: Facts = {"resettable": _reset_mark(), "reset_file": str(PROC / "clear_refs")}

    def arm(self) -> None:
        """Set the mark back to what is resident now."""
        if self.facts["resettable"] and not _reset_mark():
            raise MeterError(f"{PROC / 'clear_refs'} can no longer be written")

    def start(self) -> Sample:
        """Read what is resident and the mark."""
        if self.facts["resettable"]:
            return _status()
        return {"peak_bytes": _lifetime_peak(), "resident_bytes": None}

    stop = start

    def close(self) -> None:
        """Nothing to give back."""


def _reset_mark() -> bool:
    try:
        (PROC / "clear_refs").write_text("5")
        return "peak_bytes" in _status()
    except (OSError, MeterError):
        return False


def _status() -> Sample:
    names = {"VmHWM:": "peak_bytes", "VmRSS:": "resident_bytes"}
    found: Sample = {}
    for line in (PROC / "status").read_text().splitlines():
        label, *rest = line.split()
        if label in names:
            found[names[label]] = int(rest[0]) * 1024
    if len(found) != len(names):
        raise MeterError(f"{PROC / 'status'} does not state VmHWM and VmRSS")
    return found


def _lifetime_peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    readings: dict[str, Reading] = {}
    if facts["resettable"]:
        source = f"VmHWM, reset through {facts['reset_file']} before the window"
        readings["peak_rss_bytes"] = measured(after["peak_bytes"], "byte", source)
        readings["rss_before_bytes"] = measured(before["resident_bytes"], "byte", "VmRSS")
        return Interpretation(readings=readings)
    readings["rss_before_bytes"] = Absent(f"{facts['reset_file']} cannot be written and the mark cannot be reset here")
    if after["peak_bytes"] > before["peak_bytes"]:
        source = f"getrusage ru_maxrss, which rose inside the window ({facts['reset_file']} cannot be written)"
        readings["peak_rss_bytes"] = measured(after["peak_bytes"], "byte", source)
    else:
        readings["peak_rss_bytes"] = Absent(
            f"the high-water mark cannot be reset ({facts['reset_file']} cannot be written), and this process had "
            f"reached {before['peak_bytes']} bytes before the window: the window's own peak is at most that. "
            "Run each measurement in a process of its own, or where /proc is writable"
        )
    return Interpretation(readings=readings)


METER = Meter(
    name="rss",
    title="peak resident memory of the process",
    readings=("peak_rss_bytes", "rss_before_bytes"),
    unit="byte",
    kind="peak",
    origin="measured",
    available=lambda device: None,
    open=_ResidentMemory,
    interpret=_interpret,
    closeness=10,
)
