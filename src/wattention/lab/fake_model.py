"""A model and a trainer without contents, and the kernels torch would choose on a GPU that is not here."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from wattention.core.specs import TrainingSpec
from wattention.lab.training import Trainer
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

    def __init__(self, model: GPT2, spec: TrainingSpec, shape: tuple[int, int]) -> None:
        self._shape = shape
        super().__init__(model, _NoBatches(), spec)  # type: ignore[arg-type]

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


class CudaChoices(TorchFunctionMode):
    """What torch does differently on CUDA: which fused kernel it takes, and softmax in float32 under autocast.

    Flash for 16-bit floats without a mask, else the memory-efficient kernel; shared heads are written out before.
    Source: torch 2.6 to 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and autocast_mode.h; recalled, not
    checked.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is nn.functional.scaled_dot_product_attention:
            return _cuda_attention(*args, **kwargs)
        if func in (torch.softmax, torch.log_softmax) and torch.is_autocast_enabled("cpu"):
            args = (args[0].float(), *args[1:])
        return func(*args, **kwargs)


def _cuda_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if enable_gqa and q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    aten = torch.ops.aten
    if attn_mask is None and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] <= 256:
        flash: Tensor = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        return flash
    bias = None
    if attn_mask is not None:
        B, H, T, _ = q.shape
        bias = attn_mask.to(q.dtype).expand(B, H, T, k.shape[2])
    return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
        q, k, v, bias, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
    )[0]
