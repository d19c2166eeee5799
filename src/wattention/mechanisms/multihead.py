"""The multi-head layer that mechanisms with one full-width query, key and value share; each brings its ``attend``.

q, k, v = heads of (x W_qkv + b_qkv); y = joined heads of attend(q, k, v) W_out + b_out, in GPT-2's layout, so that
GPT-2 weights load into every mechanism built on it. Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2.
"""

from __future__ import annotations

from torch import Tensor, nn

from wattention.core.attended import AttendedPairs
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache
from wattention.mechanisms.caches import GrowingCache


def split_heads(x: Tensor, heads: int) -> Tensor:
    """View features as heads: x (B, T, H * D) -> (B, H, T, D), without a copy."""
    B, T, features = x.shape
    return x.view(B, T, heads, features // heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Join heads into features: x (B, H, T, D) -> (B, T, H * D); a view where the kernel wrote (B, T, H, D)."""
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


def all_causal_pairs(shape: AttentionShape, config: object) -> AttendedPairs:
    """Every query sees all earlier keys; H query and H key/value heads."""
    return AttendedPairs(heads=shape.heads, kv_heads=shape.heads, key_dim=shape.head_dim, value_dim=shape.head_dim)


class MultiHeadAttention(AttentionModule):
    """Multi-head attention with H query and H key/value heads; a subclass defines :meth:`attend`."""

    def __init__(self, shape: AttentionShape, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = shape.heads
        self.dropout = dropout
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def new_cache(self, batch: int) -> Cache:
        """Return an empty cache of keys and values; ``batch`` and dtype follow the first tokens fed."""
        return GrowingCache()

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C)."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        if cache is not None:
            assert isinstance(cache, GrowingCache)
            k, v = cache.append(k, v)
        projected: Tensor = self.out(join_heads(self.attend(q, k, v)))
        return projected

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with queries that are the last T of S tokens: q (B, H, T, D), k and v (B, H, S, D) -> (B, H, T, D)."""
        raise NotImplementedError
