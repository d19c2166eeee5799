"""A model and a trainer without contents, and the kernels torch would choose on a GPU that is not here."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wattention.core.specs import TrainingSpec
from wattention.lab.training import Trainer
from wattention.mechanisms.target import KERNELS_UNKNOWN, cuda_capability, target_of
from wattention.model.gpt2 import GPT2


class FakeGPT2(GPT2):
    """The model, which is already where it belongs."""

    def to(self, *_: Any, **__: Any) -> Self:
        """Return itself."""
        return self

    def _initialise(self, seed: int) -> None:
        """Leave contents that are not there."""


class FakeTrainer(Trainer):
    """The trainer itself, with batches that have no contents."""

    _shape = (0, 0)

    def __init__(self, model: GPT2, spec: TrainingSpec) -> None:
        super().__init__(model, _NoBatches(), spec)  # type: ignore[arg-type]

    def step_of(self, shape: tuple[int, int]) -> None:
        """Take a step on a batch of this shape (B, T), as if it were the first."""
        self._shape, self.next_step = shape, 0
        self.step()
        self._last = None

    def _to_device(self, batch: Any) -> tuple[Tensor, Tensor]:
        return no_tokens(self._shape), no_tokens(self._shape)

    def _seed_dropout(self, step: int) -> None:
        """Leave the generators of this process alone."""


class _NoBatches:
    def train(self, index: int) -> None:
        """Return nothing: sizes are known."""


def no_tokens(shape: tuple[int, int]) -> Tensor:
    """Return token ids (B, T) that have no contents under a fake mode."""
    return torch.empty(shape, dtype=torch.long)


_IN_FLOAT32 = frozenset({"softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "cumsum"}) | frozenset(
    {"exp", "log", "pow", "__pow__", "rsqrt", "reciprocal"}
)
"""What CUDA's autocast computes in float32 and the CPU's does not, as far as attention layers use it."""


_CHANGED = {
    func: name
    for name in (*_IN_FLOAT32, "scaled_dot_product_attention")
    for place in (torch, Tensor, nn.functional)
    if (func := getattr(place, name, None)) is not None
}
"""Under all the names they are called by."""


class CudaChoices(TorchFunctionMode):
    """What torch does differently on CUDA: the attention kernel, the RMSNorm kernel, and autocast to float32.

    Source: torch 2.13, ATen/autocast_mode.h, AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE;
    aten/src/ATen/native/layer_norm.cpp, rms_norm_symint: one kernel since torch 2.8.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = _CHANGED.get(func)
        if name is None:
            return func(*args, **kwargs)
        if name == "scaled_dot_product_attention":
            return _cuda_attention(*args, **kwargs)
        if name in _IN_FLOAT32 and torch.is_autocast_enabled("cpu") and args and _is_narrow(args[0]):
            args = (args[0].float(), *args[1:])
        return _one_kernel_norm(*args, **kwargs) if name == "rms_norm" else func(*args, **kwargs)


def _is_narrow(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.element_size() < 4


def _one_kernel_norm(
    input: Tensor,  # noqa: A002 (torch's name)
    normalized_shape: Any,
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    y: Tensor = _OneKernelNorm.apply(input, weight)  # type: ignore[no-untyped-call]
    return y


class _OneKernelNorm(torch.autograd.Function):
    """RMSNorm as CUDA has it: x and a statistic of each row are kept, in float32 or wider."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None) -> Tensor:
        y, statistic = _norm_operators()[0].rms_norm(x, weight)
        ctx.save_for_backward(x, statistic, weight)
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, statistic, weight = ctx.saved_tensors
        dx, dweight = _norm_operators()[0].rms_norm_backward(g, x, statistic, weight)
        return dx, None if weight is None else dweight


@cache
def _norm_operators() -> tuple[Any, Any]:
    """Return operators without contents, and what keeps them; torch has its own on CUDA, written out elsewhere."""

    def forward(x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        return torch.empty_like(x), torch.empty((*x.shape[:-1], 1), dtype=wide, device=x.device)

    def backward(g: Tensor, x: Tensor, statistic: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        return torch.empty_like(x), torch.empty_like(x[..., :0] if weight is None else weight)

    declare: Any = torch.library.Library
    library = declare("wattention", "FRAGMENT")
    library.define("rms_norm(Tensor x, Tensor? weight) -> (Tensor, Tensor)")
    library.define("rms_norm_backward(Tensor g, Tensor x, Tensor statistic, Tensor? weight) -> (Tensor, Tensor)")
    library.impl("rms_norm", forward, "Meta")
    library.impl("rms_norm_backward", backward, "Meta")
    return torch.ops.wattention, library  # which must live as long as its operators


def _cuda_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Run the kernel that torch takes, in its order of preference.

    Flash: 16-bit floats, no mask, one head dim up to 256, which is filled up to a multiple of 8, compute capability 8.0
    or newer; knows shared heads. Memory-efficient: float16, float32, and bfloat16 from 8.0 on, head dims that are
    multiples of 16 bytes, as many heads of keys as of queries; rows of a mask are filled up to a multiple of 8. Else
    the explicit kernel, and always on devices whose kernels nobody looked at. On compute capability 9.0 and 10.x torch
    2.11 and newer prefer cuDNN's kernel to flash (head dims that are multiples of 8): its operands and results have
    the same sizes, and flash stands for it here.

    Source: select_sdp_backend, check_prefer_cudnn_attention and can_use_*_attention in
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (commit 001f694) with the checks of torch 2.13's own
    sdp_utils_cpp.h; scaled_dot_product_attention and preprocess_mask in transformers/attention.cpp. Versions after 2.13
    let the memory-efficient kernel share heads; in 2.13 its backward pass cannot.
    """
    if torch.is_autocast_enabled("cpu"):
        narrow = torch.get_autocast_dtype("cpu")
        query, key, value = (x.to(narrow) for x in (query, key, value))
    known_kernels = target_of(query.device) not in KERNELS_UNKNOWN
    D, scale = query.shape[-1], query.shape[-1] ** -0.5 if scale is None else scale
    aten, modern = torch.ops.aten, cuda_capability() >= 8.0
    half = query.element_size() == 2 and modern and known_kernels
    with torch.autocast("cpu", enabled=False):
        if half and attn_mask is None and D == value.shape[-1] <= 256 and not (is_causal and _is_oblong(query, key)):
            q, k, v = (nn.functional.pad(x, (0, -D % 8)) if D % 8 else x for x in (query, key, value))
            out: Tensor = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
            return out[..., :D]
        bias = None if attn_mask is None else _additive(attn_mask, query.dtype)
        aligned = all(x.shape[-1] * x.element_size() % 16 == 0 for x in (query, value))
        known = known_kernels and query.element_size() <= 4 and (modern or query.dtype != torch.bfloat16)
        if aligned and known and query.shape[1] == key.shape[1]:
            if bias is not None:
                bias = _mask_of_every_head(bias, query, key)
            lse = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
            return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
                query, key, value, bias, lse, dropout_p, is_causal, scale=scale
            )[0]
        return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
            query, key, value, bias, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]


def _is_oblong(query: Tensor, key: Tensor) -> bool:
    return query.shape[-2] != key.shape[-2]


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.where(mask, torch.scalar_tensor(0.0, dtype=dtype), torch.scalar_tensor(-torch.inf, dtype=dtype))


def _mask_of_every_head(bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Expand a mask to (B, H, T, S), with rows that are multiples of 8 in memory."""
    S = bias.shape[-1]
    if S % 8:
        bias = nn.functional.pad(bias, (0, -S % 8))[..., :S]
    return bias.expand(*query.shape[:3], key.shape[2])
