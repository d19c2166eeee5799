"""The second opinion on a GPU's energy: its power sensor, sampled by another process and integrated.

The counter and the sensor of one board can disagree (some sensors see a quarter of the time, some average over a
second). Both are reported, with their gap, and the reader decides::

    gap = (sampled - counter) / counter

The integral carries its whole uncertainty as its range, in parts as uncertainty.py defines them: the samples' scatter,
the sensor's lag at both ends of the window, and the class of the sensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wattention.core.quantities import Absent, Quantity, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, MeterError, Sample, is_cuda
from wattention.meters.clock import Clock, SystemClock
from wattention.meters.power_process import PowerProcess, PowerSample, Reader, integrate_power
from wattention.meters.sensor_class import find_class
from wattention.meters.uncertainty import sampled_uncertainty
from wattention.meters.zeus_layer import find_gpu, guarded, is_amd, list_gpus

PERIOD_S = 0.05
FEWEST_SAMPLES = 20
GAP_LIMIT = 0.10
"""Counter and sampler further apart than this are flagged."""


def gpu_power_reader(position: int) -> tuple[Reader, str]:
    """Open the power sensor of one GPU: the instantaneous one, or the averaging one where it has none."""
    gpu = guarded(lambda: list_gpus()[0][position], "no GPU power sensor")
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


class SampleSource(Protocol):
    """What samples power while the window is open: a process of its own, or a simulated device."""

    sensor: str

    def since(self, start_ns: int) -> Sequence[PowerSample]:
        """Return the samples from the last one before ``start_ns`` up to one taken now."""

    def cpu_s(self) -> float:
        """Return the CPU seconds that sampling has used."""

    def close(self) -> None:
        """Stop sampling."""


class Sampler:
    """The opened sampler of one domain.

    Args:
        source: where the samples come from.
        domain: the counter's domain that it is the second opinion on.
        sensor_class: the sensor's row in sensor_class.py.
        clock: stamps the start of a window; the machine's own unless given.
    """

    def __init__(
        self, source: SampleSource, *, domain: str, sensor_class: str, period_s: float, clock: Clock | None = None
    ) -> None:
        self.source = source
        self._clock: Clock = clock if clock is not None else SystemClock()
        self.facts: Facts = {
            "domain": domain,
            "sensor": source.sensor,
            "period_s": period_s,
            "sensor_class": sensor_class,
        }
        self._start_ns = 0

    def arm(self) -> None:
        """Nothing to reset."""

    def start(self) -> Sample:
        """Remember the last sample before the window."""
        self._start_ns = self._clock.monotonic_ns()
        return {"at_ns": self._start_ns}

    def stop(self) -> Sample:
        """Fetch the samples of the window, with one taken now."""
        return {"samples": [list(sample) for sample in self.source.since(self._start_ns)]}

    def close(self) -> None:
        """End the sampling process."""
        self.source.close()


def _open(device: str) -> Sampler:
    position, gpu, _ = find_gpu(device)
    process = PowerProcess(functools.partial(gpu_power_reader, position), period_s=PERIOD_S)
    kind = "nvml_instant" if process.sensor.startswith("instantaneous") else "nvml_averaged"
    return Sampler(process, domain=f"gpu{position}", sensor_class="rocm" if is_amd(gpu) else kind, period_s=PERIOD_S)


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    name = f"sampled_energy_{facts['domain']}_j"
    samples = [(int(at), float(watts)) for at, watts in after["samples"]]
    count = sum(interval.start_ns < at < interval.end_ns for at, _ in samples)
    energy_j = integrate_power(samples, interval.start_ns, interval.end_ns)
    if energy_j is None or count < FEWEST_SAMPLES:
        why = f"not measurable: {count} power samples in the window, at least {FEWEST_SAMPLES} are needed"
        return Interpretation(readings={name: Absent(why)})
    part = sampled_uncertainty(facts, energy_j, samples, interval.start_ns, interval.end_ns)
    reading = Quantity(
        value=energy_j,
        unit="J",
        origin="measured",
        source=f"{facts['sensor']}, {count} samples every {facts['period_s']:g} s in another process, trapezoid "
        f"integral; range 95 %: {part.window_j:.3g} J of this window, {part.shared_j:.3g} J shared "
        f"({find_class(facts.get('sensor_class')).title})",
        low=max(0.0, energy_j - part.half_j),
        high=energy_j + part.half_j,
    )
    return Interpretation(readings={name: reading, **part.readings(f"sampled_{facts['domain']}")})


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
            message = f"{domain}: sampled power integrates to {1 + gap:.3g} times the counter (limit 1 ± {GAP_LIMIT:g})"
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
    open=_open,
    interpret=_interpret,
    derive=_derive,
    gpu_only=True,
    closeness=60,
)
