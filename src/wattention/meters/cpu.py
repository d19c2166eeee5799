"""CPU seconds of this process and all its descendants, split into user and system time, with minor page faults.

The machine's busy time says nothing about one program; this is the tree's own time (process_tree.py reads it)::

    CPU s = d(self) + d(reaped children) + d(living descendants)        cores busy = CPU s / elapsed s

A child that lives at the first read and has been reaped at the second moves from the third term to the second with
all its time, so the sum stays true. A grandchild whose parent died without waiting for it is lost to the tree.
Minor faults are pages the kernel had to hand out and zero: with large fresh tensors that can be 40 % of a step.
"""

from __future__ import annotations

from wattention.core.quantities import Absent, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, Sample
from wattention.meters.process_tree import SOURCE, ProcessTree, grown, system_s, user_s


class _CpuTimes:
    def __init__(self, device: str) -> None:
        self.facts: Facts = {"source": SOURCE}
        self._tree = ProcessTree()
        self.start = self._tree.read_before
        self.stop = self._tree.read_after

    def arm(self) -> None:
        """Nothing to reset: counters are read as differences."""

    def close(self) -> None:
        """Nothing to give back."""


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    user, system = user_s(before, after), system_s(before, after)
    source = str(facts["source"])
    if user + system < 0:
        reason = "a descendant ended without being waited for, and took its CPU time with it"
        return Interpretation(
            readings=METER.absent(reason), flags=(Flag(kind="counter_backwards", message=f"cpu: {reason}"),)
        )
    readings: dict[str, Reading] = {
        "cpu_s": measured(user + system, "s", source),
        "cpu_user_s": measured(user, "s", source),
        "cpu_system_s": measured(system, "s", source),
    }
    if interval.elapsed_s > 0:
        cores = (user + system) / interval.elapsed_s
        readings["cores_busy"] = measured(cores, "core", f"CPU seconds over elapsed seconds; {source}")
    else:
        readings["cores_busy"] = Absent("the interval is empty")
    if before["living_faults"] is None or after["living_faults"] is None:
        readings["minor_faults"] = Absent("page faults of the descendants cannot be read on this system")
    else:
        faults = grown(before, after, "faults") + grown(before, after, "living_faults")
        readings["minor_faults"] = measured(faults, "fault", source)
    return Interpretation(readings=readings)


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
