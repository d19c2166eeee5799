"""Which device the layers are written for at the moment: the one their tensors are on, or one that is not here.

Kernels choose their form by the kind of device (groups of heads that fit a CPU's cache, or all heads at once) and by
its compute capability. When a model is traced for a GPU on a machine without one, its tensors have sizes but no
contents, and the device is told here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

NEWEST = 99.0
"""A compute capability that lacks nothing."""
KERNELS_UNKNOWN = frozenset({"mps", "xla"})
"""Kinds of devices whose attention kernels nobody looked at: explicit products stand for them in a trace."""

_TARGET: ContextVar[tuple[str, float] | None] = ContextVar("wattention_target", default=None)


def target_of(device: torch.device | None = None) -> str:
    """Return the kind of device to choose kernels for: the one a trace asks for, that of ``device``, or a CPU."""
    told = _TARGET.get()
    if told is not None:
        return told[0]
    return "cpu" if device is None else device.type


def cuda_capability() -> float:
    """Return the compute capability, e.g. 8.9, of the board that a trace asks for, or else of the one that is here."""
    told = _TARGET.get()
    if told is not None:
        return told[1]
    if not torch.cuda.is_available():
        return NEWEST
    major, minor = torch.cuda.get_device_capability()
    return major + minor / 10


@contextmanager
def traced_for(kind: str, capability: float = NEWEST) -> Iterator[None]:
    """Choose kernels for a kind of device, e.g. ``cuda``, and a capability, whatever device the tensors are on."""
    token = _TARGET.set((kind, capability))
    try:
        yield
    finally:
        _TARGET.reset(token)
