"""Grouped-query attention: H query heads share G key/value heads, H / G of them each.

Idea: the cache and the key/value projections shrink by H / G, the attention itself costs what multi-head attention
costs. Query head h reads key/value head h // (H / G). The shared heads are never copied: the fused kernel is told of
the grouping and finds them by their stride, in the backward pass too.
Cost: projections 2 B T C (2 C + 2 G D) FLOPs, products as for H heads. Source: Ainslie et al. 2023, GQA,
arXiv 2305.13245, section 2.2; Shazeer 2019, arXiv 1911.02150 (G = 1).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from wattention.core.attended import AttendedPairs
from wattention.core.cost import Cost
from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache, Limit, Mechanism, MechanismConfig
from wattention.mechanisms.caches import GrowingCache
from wattention.mechanisms.costs import statistic_bytes, tiled_causal_pairs
from wattention.mechanisms.multihead import join_heads, split_heads
from wattention.mechanisms.reference import causal, heads_of, joined, linear, softmax_attention


class GqaConfig(MechanismConfig):
    """Settings: ``kv_heads`` is G; without it, the divisor of H below H that is nearest to H / 3."""

    kv_heads: int | None = Field(default=None, ge=1)


def kv_heads(shape: AttentionShape, config: GqaConfig) -> int:
    """Return G for a shape; raise ``UserError`` where the wish does not divide H."""
    H = shape.heads
    divisors = [d for d in range(1, H + 1) if H % d == 0]
    if config.kv_heads is None:
        return min(divisors[:-1] or [1], key=lambda d: (abs(3 * d - H), d))
    if config.kv_heads not in divisors:
        raise UserError(
            "kv_heads does not divide the query heads",
            got=f"kv_heads {config.kv_heads}, heads {H}",
            wanted=f"one of {', '.join(map(str, divisors))}",
        )
    return config.kv_heads


class GroupedQueryAttention(AttentionModule):
    """H query heads over G key/value heads; ``qkv`` projects to C + 2 G D features."""

    def __init__(self, shape: AttentionShape, groups: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dropout = shape.heads, groups, dropout
        self.widths = (shape.width, groups * shape.head_dim, groups * shape.head_dim)
        self.qkv = nn.Linear(shape.width, sum(self.widths))
        self.out = nn.Linear(shape.width, shape.width)

    def new_cache(self, batch: int) -> Cache:
        """Return an empty cache of G keys and values a token."""
        return GrowingCache()

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C)."""
        q, k, v = self.qkv(x).split(self.widths, dim=-1)
        q, k, v = split_heads(q, self.heads), split_heads(k, self.kv_heads), split_heads(v, self.kv_heads)
        if cache is not None:
            assert isinstance(cache, GrowingCache)
            k, v = cache.append(k, v)
        T, S = q.shape[2], k.shape[2]
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril_(S - T) if 1 < T < S else None
        attended = scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=T == S,
            enable_gqa=True,
        )
        projected: Tensor = self.out(join_heads(attended))
        return projected


def build(shape: AttentionShape, config: GqaConfig, dropout: float) -> GroupedQueryAttention:
    """Build the layer; ``dropout`` acts on the attention weights and changes the kernel on a CPU."""
    return GroupedQueryAttention(shape, kv_heads(shape, config), dropout)


def reference(parameters: Mapping[str, Tensor], x: Tensor, shape: AttentionShape, config: GqaConfig) -> Tensor:
    """Multi-head attention in which each key/value head is written out once for every query head that reads it."""
    H, G, D = shape.heads, kv_heads(shape, config), shape.head_dim
    q, k, v = torch.split(linear(parameters, "qkv", x), [H * D, G * D, G * D], dim=-1)
    group_of_head = torch.arange(H, device=x.device) // (H // G)
    k, v = heads_of(k, G)[:, group_of_head], heads_of(v, G)[:, group_of_head]
    return linear(parameters, "out", joined(softmax_attention(heads_of(q, H), k, v, causal(x.shape[1]))))


def cost(shape: AttentionShape, config: GqaConfig, bytes_per_element: int) -> Cost:
    """Return the exact cost; products count for H heads, projections and cache for G."""
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    kv_width = 2 * kv_heads(shape, config) * D
    projections = 2 * B * T * C * (2 * C + kv_width)
    product_model = 2 * B * H * D * shape.causal_pairs
    product_hardware = 2 * B * H * D * tiled_causal_pairs(T)
    saved_elements = B * T * (C + C + kv_width + C)  # x; q, k, v; the kernel's output, which out reads too
    return Cost(
        parameters=C * (C + kv_width) + C + kv_width + C * C + C,
        forward_flop=projections + 2 * product_model,
        backward_flop=2 * projections + 4 * product_model,
        hardware_forward_flop=projections + 2 * product_hardware,
        hardware_backward_flop=2 * projections + 5 * product_hardware,
        saved_bytes=saved_elements * bytes_per_element + B * H * T * statistic_bytes(bytes_per_element),
        cache_bytes=B * T * kv_width * bytes_per_element,
    )


def attends(shape: AttentionShape, config: GqaConfig) -> AttendedPairs:
    """Every query sees all earlier keys; H query heads over G key/value heads."""
    D = shape.head_dim
    return AttendedPairs(heads=shape.heads, kv_heads=kv_heads(shape, config), key_dim=D, value_dim=D)


MECHANISM = Mechanism(
    name="gqa",
    title="Grouped-query attention",
    paper="Ainslie et al. 2023, GQA, arXiv 2305.13245, section 2.2",
    config=GqaConfig,
    build=build,
    reference=reference,
    cost=cost,
    exact=True,
    attends=attends,
    subquadratic=False,
    heads_sharing=lambda shape, config: shape.heads // kv_heads(shape, config),
    limits=(
        Limit(
            what="dropout at the cost of the record",
            why="on a CPU dropout moves torch to its math kernel, which copies shared heads and forms T x T weights",
        ),
        Limit(
            what="float32 on CUDA at the cost of the record",
            why="of torch's CUDA kernels only flash and cuDNN know groups, and they are written for 16-bit floats",
        ),
    ),
)
