"""Peak of live tensor storage in one step: exact, from the allocator's own events.

``torch.profiler`` with ``profile_memory`` reports every block that torch's allocator hands out or takes back, scratch
inside kernels included, which a dispatch mode never sees. With events e_1 .. e_n (bytes, negative when freed)::

    above start = max over k of (e_1 + ... + e_k), at least 0            peak = live before + above start

The profiler only knows the size of a block that it saw allocated, so a free of an older block counts nothing: gradients
freed by ``zero_grad`` would be missed. Therefore the step runs ``warm_steps`` times first inside the same profile, and
what a steady step frees is what the one before it allocated. Profiling slows the step: never time a profiled one.

Not seen: memory that libraries take from malloc behind torch's back (oneDNN or MKL packing buffers), and Python itself;
peak resident memory (rss.py) contains those.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from wattention.core.quantities import Absent, Quantity, Reading, counted, measured
from wattention.meters.base import is_cuda
from wattention.meters.profiler import profiled

_MARK = "wattention::measured_step"
_MEMORY_EVENT = "[memory]"


@dataclass(frozen=True, kw_only=True)
class TensorMemory:
    """The storage of tensors in one step."""

    live_before_bytes: Reading
    """Storage of all tensors that Python can reach when the step starts: parameters, gradients, optimiser, data."""
    above_start_bytes: Reading
    """The highest point of the running sum, above what was live when the step started."""
    peak_bytes: Reading
    """The sum of the two."""


def measure_tensor_memory(step: Callable[[], object], *, device: str = "cpu", warm_steps: int = 1) -> TensorMemory:
    """Measure the peak of live tensor storage of one step, after ``warm_steps`` unmeasured ones.

    Args:
        step: runs one step; it is called ``warm_steps + 1`` times.
        device: ``cpu``, or a CUDA device, where torch's allocator keeps the marks itself.

    Errors: those of ``step``; a profiler that yields no memory events answers :class:`Absent`.
    """
    if is_cuda(device):
        return _on_cuda(step, device, warm_steps)
    from torch.profiler import record_function

    with profiled(memory=True) as trace:
        for _ in range(warm_steps):
            step()
        live = live_tensor_bytes("cpu")
        with record_function(_MARK):
            step()
    changes = _changes_inside_mark(e for e in trace.events if e.device_type().name == "CPU")
    before = counted(live, "byte", "unique storages of the tensors that Python can reach, at the start of the step")
    if changes is None:
        lost = Absent("torch.profiler gave no event for the step: this build of torch has no kineto")
        return TensorMemory(live_before_bytes=before, above_start_bytes=lost, peak_bytes=lost)
    above = peak_of_running_sum(changes)
    how = f"torch.profiler allocator events of one step ({len(changes)} events, after {warm_steps} warm step(s))"
    return TensorMemory(
        live_before_bytes=before,
        above_start_bytes=measured(above, "byte", f"{how}, maximum of the running sum above the start"),
        peak_bytes=measured(live + above, "byte", f"{how}, plus {live} bytes live at its start"),
    )


def measure_peak_tensor_bytes(step: Callable[[], object], *, device: str = "cpu", warm_steps: int = 1) -> Reading:
    """Measure the peak alone; its source states the bytes that were live before the step."""
    return measure_tensor_memory(step, device=device, warm_steps=warm_steps).peak_bytes


def peak_of_running_sum(changes: Iterable[int]) -> int:
    """Return the highest partial sum, at least 0."""
    level = highest = 0
    for change in changes:
        level += change
        highest = max(highest, level)
    return highest


def live_tensor_bytes(device_type: str) -> int:
    """Sum the storages of all tensors on a device that Python can reach, each storage once."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    storages: dict[int, int] = {}
    for thing in gc.get_objects():
        # type() and not isinstance: lazy proxies of other libraries must not be woken up.
        kind = type(thing)
        if not issubclass(kind, torch.Tensor) or issubclass(kind, FakeTensor):  # a fake one has a size and no storage
            continue
        if thing.device.type == device_type:
            for tensor in (thing, thing.grad if thing.is_leaf else None):
                # a distributed tensor wraps a local one, which is in the list too, and has no storage of its own
                if tensor is not None and tensor.layout is torch.strided and not hasattr(tensor, "_local_tensor"):
                    storage = tensor.untyped_storage()
                    storages[_address(storage)] = storage.nbytes()
    storages.pop(0, None)
    return sum(storages.values())


def _address(storage: Any) -> int:
    """Return where a storage lies, 0 where it has a size and no contents, as of tensors that are traced."""
    try:
        return int(storage.data_ptr())
    except RuntimeError:
        return 0


def _changes_inside_mark(events: Iterable[Any]) -> list[int] | None:
    """Return the allocator's changes inside the marked step in order of time; None without a mark."""
    marks: list[tuple[int, int]] = []
    changes: list[tuple[int, int]] = []
    for event in events:
        if event.name() == _MARK:
            marks.append((event.start_ns(), event.start_ns() + event.duration_ns()))
        elif event.name() == _MEMORY_EVENT:
            changes.append((event.start_ns(), event.nbytes()))
    if not marks:
        return None
    start_ns, end_ns = marks[-1]
    changes.sort(key=lambda change: change[0])  # stable: events of one instant keep their order
    return [size for at_ns, size in changes if start_ns <= at_ns <= end_ns]


def _on_cuda(step: Callable[[], object], device: str, warm_steps: int) -> TensorMemory:
    import torch

    for _ in range(warm_steps):
        step()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    live = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    source = f"torch CUDA caching allocator, {torch.cuda.get_device_name(device)}, one step"
    return TensorMemory(
        live_before_bytes=measured(live, "byte", source),
        above_start_bytes=measured(peak - live, "byte", source),
        peak_bytes=Quantity(value=peak, unit="byte", origin="measured", source=f"{source}, {live} bytes live before"),
    )
