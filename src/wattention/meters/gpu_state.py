"""The state of an NVIDIA GPU around a window: temperature, clocks, power limit, other processes, time held back.

A reading after the work shows a device that is already cooling and idle, so what held the clocks back is taken from
counters, not from the state: NVML's violation times count the nanoseconds in which the power limit, or heat, kept the
clocks down. A window is flagged when heat did so for more than 1 % of it, when the power limit did (common and worth
knowing: all mechanisms at the limit draw alike), and when other processes use the device.

Source: NVML API reference, nvmlDeviceGetViolationStatus, nvmlDeviceGetCurrentClocksEventReasons (called ThrottleReasons
before driver 535; the old name, and nvmlDeviceGetTemperature, end with CUDA 14).
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any

from wattention.core.quantities import Absent, Reading, measured
from wattention.meters.base import Facts, Flag, Interpretation, Interval, Meter, MeterError, Sample, is_cuda
from wattention.meters.zeus_layer import find_gpu, is_amd

LIMITED_SHARE_LIMIT = 0.01
REASONS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "synchronised boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability",
}
"""NVML's bits of clock event reasons; idle (0x1) and settings of the user (0x2, 0x100) are no disturbance."""

_GAUGES = {
    "gpu_temperature_celsius": ("temperature", "celsius", 1.0),
    "gpu_clock_hz": ("sm_clock_mhz", "Hz", 1e6),
    "gpu_memory_clock_hz": ("memory_clock_mhz", "Hz", 1e6),
    "gpu_power_limit_w": ("power_limit_mw", "W", 1e-3),
}


class _State:
    def __init__(self, device: str) -> None:
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise MeterError("NVML is read through nvidia-ml-py: pip install 'wattention[energy]'") from error
        position, gpu, _ = find_gpu(device)
        if not hasattr(gpu, "handle") or is_amd(gpu):
            raise MeterError("clocks and throttling are read through NVML, and this GPU is not NVIDIA's")
        self._handle = gpu.handle
        self.facts: Facts = {"gpu": position, "name": gpu.get_name(), "own_process": os.getpid()}

    def arm(self) -> None:
        """Nothing to reset."""

    def start(self) -> Sample:
        """Read state and counters; what a device does not support is None."""
        nvml, handle = self._nvml, self._handle
        return {
            "temperature": self._first(
                ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), handle, nvml.NVML_TEMPERATURE_GPU
            ),
            "sm_clock_mhz": self._try(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": self._try(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "power_limit_mw": self._try(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
            "reasons": self._first(
                ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), handle
            ),
            "power_held_ns": self._held(nvml.NVML_PERF_POLICY_POWER),
            "heat_held_ns": self._held(nvml.NVML_PERF_POLICY_THERMAL),
            "processes": self._try(lambda: [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]),
        }

    stop = start

    def _held(self, policy: int) -> Any:
        return self._try(lambda: self._nvml.nvmlDeviceGetViolationStatus(self._handle, policy).violationTime)

    def _first(self, names: tuple[str, ...], *args: Any) -> Any:
        """Read by the first of several names that both the library and the driver know."""
        for name in names:
            read = getattr(self._nvml, name, None)
            value = None if read is None else self._try(functools.partial(read, *args))
            if value is not None:
                return value
        return None

    def _try(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except self._nvml.NVMLError as error:
            lost = getattr(self._nvml, "NVML_ERROR_GPU_IS_LOST", None)
            if getattr(error, "value", None) == lost:
                raise MeterError(f"{self.facts['name']} is lost: {error}") from error
            return None

    def close(self) -> None:
        """The zeus layer keeps its devices for the life of the process."""


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    readings: dict[str, Reading] = {}
    flags: list[Flag] = []
    source = f"NVML, {facts['name']}"
    for name, (key, unit, scale) in _GAUGES.items():
        value = after[key]
        readings[name] = (
            Absent(f"{source}: {key} is not supported")
            if value is None
            else measured(value * scale, unit, f"{source}, after the window")
        )
    for name, key, kind, cause in (
        ("gpu_heat_limited_share", "heat_held_ns", "thermal_throttle", "heat"),
        ("gpu_power_limited_share", "power_held_ns", "power_cap", "the power limit"),
    ):
        share = _share(before[key], after[key], interval)
        readings[name] = share if isinstance(share, Absent) else measured(share, "1", f"{source} violation time")
        if not isinstance(share, Absent) and share > LIMITED_SHARE_LIMIT:
            flags.append(Flag(kind=kind, message=f"{cause} held the GPU's clocks back for {share:.0%} of the window"))
    held = [title for bit, title in REASONS.items() if (before["reasons"] or 0) & bit or (after["reasons"] or 0) & bit]
    if held:
        flags.append(Flag(kind="throttle_reason", message=f"the GPU names as holding it back: {', '.join(held)}"))
    if before["power_limit_mw"] != after["power_limit_mw"] and None not in (
        before["power_limit_mw"],
        after["power_limit_mw"],
    ):
        change = f"from {before['power_limit_mw'] / 1e3:g} to {after['power_limit_mw'] / 1e3:g} W"
        flags.append(Flag(kind="power_limit_changed", message=f"somebody set the GPU's power limit {change}"))
    flags.extend(_company(facts, before["processes"], after["processes"]))
    return Interpretation(readings=readings, flags=tuple(flags))


def _company(facts: Facts, before: list[int] | None, after: list[int] | None) -> list[Flag]:
    """Flag processes that used the GPU at either end of the window."""
    others = max(_others(facts, before), _others(facts, after), key=len)
    return [Flag(kind="gpu_company", message=f"{len(others)} other process(es) use the GPU")] if others else []


def _others(facts: Facts, processes: list[int] | None) -> list[int]:
    # Inside a container NVML may list host numbers; a single process is then taken to be this one.
    listed = processes or []
    others = [pid for pid in listed if pid != facts["own_process"]]
    return others if facts["own_process"] in listed else others[1:]


def _share(before: int | None, after: int | None, interval: Interval) -> float | Absent:
    if before is None or after is None:
        return Absent("NVML has no violation time for this device")
    if interval.elapsed_s <= 0 or after < before:
        return Absent("the violation time went backwards, or the interval is empty")
    return min(1.0, (after - before) / 1e9 / interval.elapsed_s)


def _available(device: str) -> Absent | None:
    if not is_cuda(device):
        return Absent(f"the work runs on {device}, not on a GPU")
    try:
        find_gpu(device)
    except MeterError as error:
        return Absent(str(error))
    return None


METER = Meter(
    name="gpu_state",
    title="GPU temperature, clocks, throttling and company",
    readings=(*_GAUGES, "gpu_heat_limited_share", "gpu_power_limited_share"),
    unit="1",
    kind="gauge",
    origin="measured",
    available=_available,
    open=_State,
    interpret=_interpret,
    gpu_only=True,
    closeness=50,
)
