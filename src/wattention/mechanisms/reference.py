"""The pieces of the readable references: what each mechanism computes, written to be obviously right.

A reference takes the parameters of a module as its ``state_dict`` and plain tensors in any dtype; in float64 it is the
definition of correct, in a lower precision its own error sets the budget that the fast path is held to. It is
differentiable, forms every intermediate, and knows neither caches nor blocks. Memory O(T^2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from wattention.core.shapes import AttentionShape

Parameters = Mapping[str, Tensor]


def linear(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    """Apply the linear layer ``name`` of a ``state_dict``: x (..., in) -> (..., out), with its bias if it has one."""
    y = x @ parameters[f"{name}.weight"].T
    bias = parameters.get(f"{name}.bias")
    return y if bias is None else y + bias


def heads_of(x: Tensor, heads: int) -> Tensor:
    """Split features into heads: x (B, T, H * D) -> (B, H, T, D)."""
    B, T, features = x.shape
    return x.reshape(B, T, heads, features // heads).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """Join heads into features: x (B, H, T, D) -> (B, T, H * D)."""
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


def causal(tokens: int) -> Tensor:
    """Return the (T, T) mask that is true where query t may see key s, s <= t."""
    position = torch.arange(tokens)
    return position[:, None] >= position[None, :]


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float | None = None) -> Tensor:
    """Return softmax(scale Q K^T) V over the visible keys.

    q (B, H, T, D), k (B, H, S, D), v (B, H, S, Dv), visible bool (T, S) or broadcastable -> (B, H, T, Dv).
    ``scale`` defaults to 1 / sqrt(D). Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1.
    """
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) * scale
    scores = scores.masked_fill(~visible.to(scores.device), -math.inf)
    return torch.einsum("bhts,bhsd->bhtd", torch.softmax(scores, dim=-1), v)


def multi_head_attention(parameters: Parameters, x: Tensor, shape: AttentionShape, config: object) -> Tensor:
    """Causal multi-head attention with the layers ``qkv`` and ``out``: x (B, T, C) -> (B, T, C)."""
    q, k, v = (heads_of(part, shape.heads) for part in linear(parameters, "qkv", x).chunk(3, dim=-1))
    return linear(parameters, "out", joined(softmax_attention(q, k, v, causal(x.shape[1]))))
