"""The loads of the self-test on a real device: products of matrices, equal in size, as many as asked for.

On a CPU every core multiplies on its own, in threads that never wait for each other: a barrier spins, and spinning is
CPU time without work, which no line through the loads survives when the machine is shared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from wattention.core.errors import UserError
from wattention.meters.base import is_cuda
from wattention.meters.clock import SystemClock
from wattention.meters.selftest_rig import Rig
from wattention.meters.window import Panel, synchronise_of

CPU_WIDTH, GPU_WIDTH = 192, 4096
QUEUED = 32
"""Products queued on a GPU before the host waits for them."""


def check_device(device: str) -> None:
    """Refuse a device that is not there.

    Errors: UserError.
    """
    import torch

    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and (kind == "cpu" or not index.isdigit())):
        raise UserError("unknown device", got=device, wanted="cpu, cuda or cuda:INDEX")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and int(index or 0) >= count:
        raise UserError(
            "this GPU is not there",
            got=device,
            wanted=f"one of the {count} CUDA devices torch sees",
            do="install a driver and a CUDA build of torch, or use --device cpu",
        )


def open_rig(device: str) -> Rig:
    """Open all meters of a device with a load for it; close ``rig.panel`` afterwards.

    On a CPU torch is set to one thread, see the module.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:1``.
    """
    return Rig(
        device=device,
        panel=Panel.open(device),
        work=_gpu_products(device) if is_cuda(device) else _cpu_products(),
        rest=time.sleep,
        clock=SystemClock(),
        touch=lambda size: bytearray(b"\1") * size,
        cores=os.cpu_count() or 1,
    )


def _gpu_products(device: str) -> Callable[[int], None]:
    """Return a function that does so many products and returns when the device is done."""
    import torch

    a = torch.rand((GPU_WIDTH, GPU_WIDTH), device=device).bfloat16()  # equal operands would toggle fewer bits
    out = torch.empty_like(a)
    synchronise = synchronise_of(device)

    def work(units: int) -> None:
        for number in range(units):
            torch.mm(a, a, out=out)
            if number % QUEUED == QUEUED - 1:
                synchronise()
        synchronise()

    return work


def _cpu_products() -> Callable[[int], None]:
    """Return a function that does so many products on every core this process may use."""
    import torch

    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(cores)
    a = torch.rand((CPU_WIDTH, CPU_WIDTH))

    def on_one_core(units: int) -> None:
        out = torch.empty_like(a)
        for _ in range(units):
            torch.mm(a, a, out=out)

    def work(units: int) -> None:
        list(pool.map(on_one_core, [units] * cores))

    return work
