"""Explicit multi-head attention: the scores of all pairs are a tensor, as textbooks write it.

Idea: y = softmax(Q K^T / sqrt(D) + mask) V, each step one operator. It is the yardstick, so it is written well: the
mask is the accumulator that the score product adds to (one pass, nothing for autograd to undo), the scale is part
of that product, and only the softmax is kept for the backward pass.
Cost: 4 T^2 D FLOPs a head forward, masked half included, and B H T^2 words kept. Source: Vaswani et al. 2017,
arXiv 1706.03762, equation 1 and section 3.2.2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import dropout

from wattention.core.cost import Cost
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import Limit, Mechanism, MechanismConfig
from wattention.mechanisms.multihead import MultiHeadAttention, all_causal_pairs
from wattention.mechanisms.reference import multi_head_attention


class BaselineConfig(MechanismConfig):
    """Explicit attention has no settings."""


class BaselineAttention(MultiHeadAttention):
    """Multi-head attention that forms the T x T matrix."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend over explicit scores (B * H, T, S)."""
        B, H, T, D = q.shape
        S = k.shape[2]
        q, k, v = q.reshape(B * H, T, D), k.reshape(B * H, S, D), v.reshape(B * H, S, D)
        scale = 1 / math.sqrt(D)
        hidden = torch.full((T, S), -math.inf, dtype=q.dtype, device=q.device).triu_(S - T + 1)
        scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=scale)
        weights = dropout(torch.softmax(scores, dim=-1), self.dropout, self.training)
        return torch.bmm(weights, v).view(B, H, T, D)


def build(shape: AttentionShape, config: BaselineConfig, dropout: float) -> BaselineAttention:
    """Build the layer; ``dropout`` acts on the attention weights."""
    return BaselineAttention(shape, dropout)


def cost(shape: AttentionShape, config: BaselineConfig, bytes_per_element: int) -> Cost:
    """Return the exact cost; the hardware multiplies all T^2 pairs."""
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    projections = 2 * B * T * C * 4 * C
    model = projections + 4 * B * H * D * shape.causal_pairs
    hardware = projections + 4 * B * H * D * T * T
    saved_elements = B * T * C + 3 * B * T * C + B * H * T * T + B * T * C  # x; q, k, v; the softmax; input of out
    return Cost(
        parameters=4 * C * C + 4 * C,
        forward_flop=model,
        backward_flop=2 * model,
        hardware_forward_flop=hardware,
        hardware_backward_flop=2 * hardware,
        saved_bytes=saved_elements * bytes_per_element,
        cache_bytes=2 * B * T * C * bytes_per_element,
    )


MECHANISM = Mechanism(
    name="baseline",
    title="Explicit attention",
    paper="Vaswani et al. 2017, Attention Is All You Need, arXiv 1706.03762, equation 1 and section 3.2.2",
    config=BaselineConfig,
    build=build,
    reference=multi_head_attention,
    cost=cost,
    exact=True,
    attends=all_causal_pairs,
    subquadratic=False,
    limits=(Limit(what="long contexts", why="it keeps B x H x T x T attention weights for the backward pass"),),
)
