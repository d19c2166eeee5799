"""The flash kernels that torch ships, called by name: the one asked for runs, or an error says why it cannot.

``scaled_dot_product_attention`` chooses among kernels and falls back without a word; here there is no choice. The
CPU kernel takes any floating dtype and head dim, the CUDA kernel float16 and bfloat16 with up to 256 features a head
on compute capability 8.0 or newer. Both want one head dim for q, k and v.

Queries that follow cached keys need a causal mask aligned to the lower right: query t of T sees keys up to
S - T + t. The CUDA kernel aligns so by itself; the CPU kernel aligns to the upper left and is given the mask as an
additive tensor (T, S), which still runs the same kernel. A single query sees every key and needs no mask.

CUDA's kernel also knows bands, the W latest keys of each query; only torch's own operator below
``scaled_dot_product_attention`` hands that on (``_flash_attention_forward``, ``window_size_left``).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from wattention.core.errors import UnsupportedError
from wattention.mechanisms.target import cuda_capability, target_of

_CPU_DTYPES = frozenset({"float64", "float32", "bfloat16", "float16"})
_CUDA_DTYPES = frozenset({"float16", "bfloat16"})
_CUDA_HEAD_DIM_MAX = 256
_CUDA_HEAD_DIM_STEP = 8


def flash_unavailable(device: str, dtype: str, head_dim: int) -> str | None:
    """Return why the flash kernel cannot run on a device type with a dtype and a head dim, or None where it can."""
    if device == "cpu":
        return None if dtype in _CPU_DTYPES else f"torch's CPU flash kernel has no {dtype} version"
    if device in ("cuda", "rocm"):
        if dtype not in _CUDA_DTYPES:
            return f"the CUDA flash kernel exists for float16 and bfloat16, not for {dtype}"
        if head_dim > _CUDA_HEAD_DIM_MAX:
            return f"the CUDA flash kernel holds at most {_CUDA_HEAD_DIM_MAX} features a head, not {head_dim}"
        if device == "cuda" and cuda_capability() < 8.0:
            return f"the CUDA flash kernel needs compute capability 8.0 or newer, not {cuda_capability():.1f}"
        return None
    return f"torch has no flash kernel for device {device}"


def flash_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """Causal attention of the last T of S tokens on the flash kernel: q (B, H, T, D), k, v (B, H, S, D) -> q's shape.

    ``scale`` defaults to 1 / sqrt(D). Raises ``UnsupportedError`` where the kernel does not exist.
    """
    D, target = q.shape[-1], target_of(q.device)
    reason = flash_unavailable(target, str(q.dtype).removeprefix("torch."), D)
    if reason is not None:
        raise UnsupportedError("the flash kernel cannot run", got=f"{q.dtype} on {target}", wanted=reason)
    scale = 1 / math.sqrt(D) if scale is None else scale
    return _on_cpu(q, k, v, scale) if target == "cpu" else _on_cuda(q, k, v, scale)


def band_unavailable(device: str, dtype: str, head_dim: int) -> str | None:
    """Return why the flash kernel cannot keep to a band; arguments as :func:`flash_unavailable`."""
    if device != "cuda":
        return f"torch's flash kernel knows no bands on device {device}"
    if torch.version.hip is not None:
        return "torch's flash kernel for ROCm was not seen to keep to a band"
    return flash_unavailable(device, dtype, head_dim)


def flash_band(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attend to the ``window`` latest keys on CUDA's flash kernel, where :func:`band_unavailable` has nothing to say.

    q, k, v (B, H, T, D) -> (B, H, T, D), a view of a contiguous (B, T, H, D) tensor. Tiles outside are skipped.
    """
    T, D = q.shape[2:]
    q, k, v = _filled_up(q, k, v)
    kernel = torch.ops.aten._flash_attention_forward
    out: Tensor = kernel(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, None, T, T, 0.0, True, False,
        scale=1 / math.sqrt(D), window_size_left=window - 1, window_size_right=0,
    )[0]  # fmt: skip
    return out.transpose(1, 2)[..., :D]


def _on_cpu(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    T, S = q.shape[2], k.shape[2]
    mask = None
    if 1 < T < S:
        mask = torch.full((T, S), -math.inf, dtype=q.dtype, device=q.device).triu_(S - T + 1)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out: Tensor = kernel(q, k, v, 0.0, T == S, attn_mask=mask, scale=scale)[0]
    return out


def _on_cuda(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    T, D = q.shape[2:]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention
    out: Tensor = kernel(*_filled_up(q, k, v), 0.0, T > 1, False, scale=scale)[0]
    return out[..., :D]


def _filled_up(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fill one head dim up to what the CUDA kernel takes; zeros add nothing to a score."""
    short = -q.shape[-1] % _CUDA_HEAD_DIM_STEP
    return (pad(q, (0, short)), pad(k, (0, short)), pad(v, (0, short))) if short else (q, k, v)
