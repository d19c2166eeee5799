"""Which attention kernel really ran: the names of the operators and device kernels of one step.

Asking for a kernel is not the same as getting it: a mask, a dropout, a head size or a layout can move torch from a
fused kernel to the explicit one. The profiler hears what was executed. The record keeps the raw names; a table prints
:func:`title_of_kernels`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from wattention.meters.base import is_cuda
from wattention.meters.profiler import profiled

_FUSED: tuple[tuple[str, str], ...] = (
    (r"^aten::_scaled_dot_product_flash_attention_for_cpu$", "flash (CPU)"),
    (r"^aten::_scaled_dot_product_flash_attention$", "flash"),
    (r"^aten::_scaled_dot_product_efficient_attention$", "memory-efficient"),
    (r"^aten::_scaled_dot_product_cudnn_attention$", "cuDNN"),
    (r"^aten::_scaled_dot_product_fused_attention_overrideable$", "fused, by the back end"),
    (r"^aten::_scaled_dot_product_attention_math(_for_mps)?$", "math"),
    (r"^aten::_flash_attention_forward$", "flash"),
    (r"^aten::_efficient_attention_forward$", "memory-efficient"),
    (r"flex_attention", "flex"),
)
"""Operators, first match first; the backward kernel follows from the forward one and is not listed."""

_DEVICE: tuple[tuple[str, str], ...] = (
    (r"cudnn.*(sdpa|flash|fprop)", "cuDNN"),
    (r"flash_fwd|flash_attn.*fwd|flash::", "flash"),
    (r"fmha_cutlass|attention_kernel", "memory-efficient"),
    (r"aotriton.*attn_fwd|_attn_fwd", "flash (Triton)"),
)
"""Device kernels, which stand behind an operator above or come from another library."""

_PARTS: tuple[tuple[str, str], ...] = (
    (r"^aten::(bmm|baddbmm)$", "batched matmul"),
    (r"^aten::_(safe_)?softmax$", "softmax"),
    (r"^aten::sort$", "sort"),
    (r"^aten::cumsum$", "cumulative sum"),
)
"""What an attention written out in torch is made of; GPT-2's own layers use none of these."""


def record_kernels(step: Callable[[], object], *, device: str = "cpu") -> tuple[str, ...]:
    """Return the names of the attention kernels and operators that one call of ``step`` executed, sorted.

    An empty tuple means that nothing known as attention ran.
    """
    with profiled(cuda=is_cuda(device)) as trace:
        step()
        if is_cuda(device):
            import torch

            torch.cuda.synchronize(device)
    names = {str(event.name()) for event in trace.events}
    known = [pattern for table in (_FUSED, _DEVICE, _PARTS) for pattern, _ in table]
    return tuple(sorted(name for name in names if any(re.search(pattern, name) for pattern in known)))


def title_of_kernels(names: Iterable[str]) -> str:
    """Say in words what raw names mean: ``flash (CPU)``, ``batched matmul + softmax``, or ``none recognised``."""
    raw = tuple(names)
    for table in (_FUSED, _DEVICE):
        titles = dict.fromkeys(title for pattern, title in table for name in raw if re.search(pattern, name))
        if titles:
            return " + ".join(titles)
    parts = dict.fromkeys(title for pattern, title in _PARTS for name in raw if re.search(pattern, name))
    return " + ".join(parts) if parts else "none recognised"
