"""Peak memory of torch's CUDA allocator in this process: allocated (live tensors) and reserved (taken from the device).

Both marks are reset when the window is armed. They are this process's, not the device's "used" memory, which also
holds other processes, the CUDA context and libraries' workspaces that bypass the allocator.
"""

from __future__ import annotations

import os

from wattention.core.quantities import Absent, measured
from wattention.meters.base import Facts, Interpretation, Interval, Meter, MeterError, Sample, is_cuda

_UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"


class _AllocatorMarks:
    def __init__(self, device: str) -> None:
        import torch

        self._cuda = torch.cuda
        self._device = torch.device(device)
        self.facts: Facts = {"device": device, "name": torch.cuda.get_device_name(self._device)}

    def arm(self) -> None:
        """Set both marks back to what is held now."""
        self._guard()
        self._cuda.reset_peak_memory_stats(self._device)

    def start(self) -> Sample:
        """Read marks and current values."""
        self._guard()
        return {
            "allocated_bytes": self._cuda.memory_allocated(self._device),
            "peak_allocated_bytes": self._cuda.max_memory_allocated(self._device),
            "peak_reserved_bytes": self._cuda.max_memory_reserved(self._device),
        }

    stop = start

    def _guard(self) -> None:
        if not self._cuda.is_available():
            raise MeterError("the CUDA device has gone")

    def close(self) -> None:
        """Nothing to give back."""


def _available(device: str) -> Absent | None:
    if not is_cuda(device):
        return Absent(f"the work runs on {device}: torch's CUDA allocator holds nothing of it")
    import torch

    if not torch.cuda.is_available():
        return Absent("torch sees no CUDA device: install a CUDA build of torch and a driver, or run on the cpu")
    if _UNCACHED in os.environ:
        return Absent(f"torch's allocator keeps no marks while {_UNCACHED} is set: unset it")
    return None


def _interpret(facts: Facts, before: Sample, after: Sample, interval: Interval) -> Interpretation:
    source = f"torch CUDA caching allocator, {facts['name']} ({facts['device']}), reset before the window"
    return Interpretation(
        readings={
            "cuda_peak_allocated_bytes": measured(after["peak_allocated_bytes"], "byte", source),
            "cuda_peak_reserved_bytes": measured(after["peak_reserved_bytes"], "byte", source),
            "cuda_before_bytes": measured(before["allocated_bytes"], "byte", source),
        }
    )


METER = Meter(
    name="cuda_memory",
    title="peak memory of the CUDA allocator",
    readings=("cuda_peak_allocated_bytes", "cuda_peak_reserved_bytes", "cuda_before_bytes"),
    unit="byte",
    kind="peak",
    origin="measured",
    available=_available,
    open=_AllocatorMarks,
    interpret=_interpret,
    gpu_only=True,
    closeness=20,
)
