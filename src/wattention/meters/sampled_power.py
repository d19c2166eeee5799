"""The second opinion on a GPU's energy: its power sensor, sampled by another process and integrated.

The counter and the sensor of one board can disagree (some sensors see a quarter of the time, some average over a
second). Both are reported, with their gap, and the reader decides::

    gap = (sampled - counter) / counter
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping

from wattention.core.quantities import Absent, Quantity, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, MeterError, Sample, is_cuda
from wattention.meters.power_process import PowerProcess, Reader, integrate_power
from wattention.meters.zeus_layer import find_gpu, guarded, load_zeus

PERIOD_S = 0.05
FEWEST_SAMPLES = 20
GAP_LIMIT = 0.10
"""Counter and sampler further apart than this are flagged."""


def gpu_power_reader(position: int) -> tuple[Reader, str]:
    """Open the power sensor of one of zeus's GPUs: the instantaneous one, or the averaging one where it has none."""
    gpu = guarded(lambda: load_zeus("zeus.device.gpu").get_gpus().gpus[position], "no GPU power sensor")
    failure = ""
    for read, name in ((gpu.get_instant_power_usage, "instantaneous"), (gpu.get_average_power_usage, "averaged")):
        try:
            guarded(read, f"the {name} power sensor")
        except MeterError as error:
            failure = str(error)
            continue
        return functools.partial(_watts, read), f"{name} power of {gpu.get_name()}"
    raise MeterError(failure)


def _watts(read_mw: Callable[[], int]) -> float:
    return float(guarded(read_mw, "the power sensor")) / 1e3


class _Sampler:
    def __init__(self, device: str) -> None:
        position, _, _ = find_gpu(device)
        self._process = PowerProcess(functools.partial(gpu_power_reader, position), period_s=PERIOD_S)
        self.facts: Facts = {"domain": f"gpu{position}", "sensor": self._process.sensor, "period_s": PERIOD_S}
        self._start_ns = 0

    def arm(self) -> None:
        """Nothing to reset."""

    def start(self) -> Sample:
        """Remember the last sample before the window."""
        self._start_ns = time.perf_counter_ns()
        return {"at_ns": self._start_ns}

    def stop(self) -> Sample:
        """Fetch the samples of the window, with one taken now."""
        return {"samples": [list(sample) for sample in self._process.since(self._start_ns)]}

    def close(self) -> None:
        """End the sampling process."""
        self._process.close()


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    name = f"sampled_energy_{facts['domain']}_j"
    samples = [(int(at), float(watts)) for at, watts in after["samples"]]
    count = sum(interval.start_ns < at < interval.end_ns for at, _ in samples)
    energy_j = integrate_power(samples, interval.start_ns, interval.end_ns)
    if energy_j is None or count < FEWEST_SAMPLES:
        why = f"not measurable: {count} power samples in the window, at least {FEWEST_SAMPLES} are needed"
        return Interpretation(readings={name: Absent(why)})
    source = f"{facts['sensor']}, {count} samples every {facts['period_s']:g} s in another process, trapezoid integral"
    return Interpretation(readings={name: measured(energy_j, "J", source)})


def _derive(readings: Mapping[str, Reading]) -> Interpretation:
    """Compare every sampled energy with the counter of the same domain."""
    found: dict[str, Reading] = {}
    flags: list[Flag] = []
    for name, sampled in readings.items():
        if not name.startswith("sampled_energy_") or isinstance(sampled, Absent):
            continue
        domain = name.removeprefix("sampled_energy_").removesuffix("_j")
        counter = readings.get(f"energy_{domain}_j", Absent("no counter"))
        if not isinstance(counter, Quantity):
            continue
        gap = (sampled.value - counter.value) / counter.value
        found[f"energy_gap_{domain}"] = measured(gap, "1", "(sampled - counter) / counter")
        if abs(gap) > GAP_LIMIT:
            message = f"{domain}: sampled power integrates to {gap:+.0%} of the counter (limit {GAP_LIMIT:.0%})"
            flags.append(Flag(kind="energy_gap", message=message))
    return Interpretation(readings=found, flags=tuple(flags))


def _available(device: str) -> Absent | None:
    if not is_cuda(device):
        return Absent(f"the work runs on {device}, which has no power sensor to sample beside its counters")
    try:
        find_gpu(device)
    except MeterError as error:
        return Absent(str(error))
    return None


METER = Meter(
    name="sampled_power",
    title="sampled GPU power, the second opinion",
    readings=("sampled_energy_j",),
    unit="J",
    kind="counter",
    origin="measured",
    available=_available,
    open=_Sampler,
    interpret=_interpret,
    derive=_derive,
    gpu_only=True,
    closeness=60,
)
