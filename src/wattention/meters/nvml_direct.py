"""NVIDIA GPUs through nvidia-ml-py alone, in the shape of zeus's GPUs, for machines that have no zeus.

zeus comes first because it knows every vendor; NVML's two counters need nothing of it. Whatever is read here says
``read directly`` in its source. Values are millijoules and milliwatts, as NVML and zeus give them.

Source: NVML API reference, nvmlDeviceGetTotalEnergyConsumption (Volta or newer), nvmlDeviceGetFieldValues.
"""

from __future__ import annotations

import importlib
from typing import Any

from wattention.meters.base import MeterError

ROUTE = "NVML read directly, zeus is not installed"


class NvmlGpu:
    """One GPU; the methods that zeus's GPU has and the meters use."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self.handle = nvml, handle

    def get_name(self) -> str:
        """Return the model's name."""
        return str(self._nvml.nvmlDeviceGetName(self.handle))

    def supports_get_total_energy_consumption(self) -> bool:
        """Whether the driver gives the energy counter."""
        try:
            self._nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_NOT_SUPPORTED:
                return False
            raise
        return True

    def get_total_energy_consumption(self) -> int:
        """Return millijoules since the driver was loaded."""
        return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))

    def get_instant_power_usage(self) -> int:
        """Return milliwatts now."""
        return self._field(self._nvml.NVML_FI_DEV_POWER_INSTANT)

    def get_average_power_usage(self) -> int:
        """Return milliwatts averaged by the board, over 1 s on Ampere and newer."""
        return self._field(self._nvml.NVML_FI_DEV_POWER_AVERAGE)

    def _field(self, field: int) -> int:
        scope = (field, self._nvml.NVML_POWER_SCOPE_GPU)
        metric = self._nvml.nvmlDeviceGetFieldValues(self.handle, [scope])[0]
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS:
            raise self._nvml.NVMLError(metric.nvmlReturn)
        return int(metric.value.uiVal)


def list_nvml_gpus() -> list[NvmlGpu]:
    """Return the GPUs of this machine in NVML's order.

    Errors: MeterError without nvidia-ml-py or without a driver.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise MeterError(f"neither zeus nor nvidia-ml-py is installed ({error})") from error
    try:
        nvml.nvmlInit()
        return [NvmlGpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        raise MeterError(f"no GPU energy counter: NVML: {error}") from error
