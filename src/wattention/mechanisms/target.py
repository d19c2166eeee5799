"""Which kind of device the layers are written for at the moment: the one their tensors are on, or one that is not here.

Kernels choose their form by the kind of device (groups of heads that fit a CPU's cache, or all heads at once). When a
model is traced for a GPU on a machine without one, its tensors have sizes but no contents, and the kind is told here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_TARGET: ContextVar[str | None] = ContextVar("wattention_target", default=None)


def target_of(device: torch.device) -> str:
    """Return the kind of device to choose kernels for: that of ``device``, or the one a trace asks for."""
    return _TARGET.get() or device.type


@contextmanager
def traced_for(kind: str) -> Iterator[None]:
    """Choose kernels for a kind of device, e.g. ``cuda``, whatever device the tensors are on."""
    token = _TARGET.set(kind)
    try:
        yield
    finally:
        _TARGET.reset(token)
