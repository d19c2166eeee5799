"""Small correct mechanisms for the gate's tests, and the way to break them.

``broken(...)`` makes the record of a mechanism whose reference is the module itself in float64: its author believes
in it. So a structural clause has to find the fault by itself, without a correct reference to compare with.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wattention.core.cost import Cost
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache, Mechanism, MechanismConfig
from wattention.mechanisms.baseline import MECHANISM as BASELINE
from wattention.mechanisms.multihead import MultiHeadAttention, join_heads, split_heads


class Explicit(MultiHeadAttention):
    """Explicit attention in three methods that a broken one overrides one of."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, H, T, D = q.shape
        S = k.shape[2]
        q, k, v = (part.reshape(B * H, -1, D) for part in (q, k, v))
        bias = torch.zeros(T, S, dtype=q.dtype).masked_fill(~self.visible(T, S), -math.inf)
        weights = torch.softmax(torch.baddbmm(bias, q, k.mT, alpha=self.scale(D)), dim=-1)
        return torch.bmm(weights, v).view(B, H, T, D)

    def visible(self, T: int, S: int) -> Tensor:
        return torch.ones(T, S, dtype=torch.bool).tril(S - T)

    def scale(self, D: int) -> float:
        return 1 / math.sqrt(D)


class Windowed(Explicit):
    """Keys i - W + 1 to i for W = 8."""

    W = 8

    def visible(self, T: int, S: int) -> Tensor:
        return super().visible(T, S).triu(S - T - self.W + 1)


class Rotary(Explicit):
    """Explicit attention with rotated queries and keys."""

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        start = 0 if cache is None else self.start(cache)
        q, k = rotated(q, start), rotated(k, start)
        if cache is not None:
            k, v = cache.append(k, v)
        return self.out(join_heads(self.attend(q, k, v)))

    def start(self, cache: Cache) -> int:
        return cache.length


def rotated(x: Tensor, start: int) -> Tensor:
    angle = torch.arange(start, start + x.shape[2], dtype=x.dtype)[:, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), dim=-1)


class SumCache:
    """The running sums of causal linear attention: their size does not grow."""

    def __init__(self) -> None:
        self.length, self.sums = 0, None

    @property
    def nbytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.sums)


class Linear(MultiHeadAttention):
    """Causal linear attention by running sums, phi = elu + 1."""

    def new_cache(self, batch: int) -> SumCache:
        return SumCache()

    def forward(self, x: Tensor, cache: SumCache | None = None) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        states, norms = self.sums(k[..., :, None] * v[..., None, :]), self.sums(k)
        if cache is not None:
            if cache.sums is not None:
                states, norms = states + cache.sums[0][:, :, None], norms + cache.sums[1][:, :, None]
            cache.length += x.shape[1]
            cache.sums = states[:, :, -1].clone(), norms[:, :, -1].clone()
        above, below = (q[..., None, :] @ states)[..., 0, :], (q * norms).sum(-1, keepdim=True)
        return self.out(join_heads(above / below))

    def sums(self, x: Tensor) -> Tensor:
        return x.cumsum(2)


def believed(module: type[AttentionModule]) -> Callable[..., Tensor]:
    """Return a reference that repeats whatever the module does."""

    def reference(parameters: Any, x: Tensor, shape: AttentionShape, config: Any) -> Tensor:
        return functional_call(module(shape).to(x.dtype), dict(parameters), (x,))

    return reference


def broken(module: type[AttentionModule], *, cost: dict[str, Any] | None = None, **facts: Any) -> Mechanism:
    """Return explicit attention's record with another module; ``cost`` overrides fields by value or by function."""

    def changed_cost(shape: AttentionShape, config: MechanismConfig, bytes_per_element: int) -> Cost:
        honest = BASELINE.cost(shape, config, bytes_per_element)
        wishes = (cost or {}).items()
        changes = {name: wish(getattr(honest, name)) if callable(wish) else wish for name, wish in wishes}
        return dataclasses.replace(honest, **changes)

    record: dict[str, Any] = {
        "name": module.__name__,
        "title": (module.__doc__ or "").strip(),
        "build": lambda shape, config, dropout: module(shape),
        "reference": believed(module),
        "cost": changed_cost,
    }
    return dataclasses.replace(BASELINE, **(record | facts))
