"""A mechanism of your own in one file: every head attends to all earlier tokens alike.

y_t = out(mean of v_j over j <= t): the plainest causal mixing there is, without queries and keys. Try it::

    wattention check examples/uniform.py
    wattention compare -m sdpa -m examples/uniform.py

Cost: two products of C x C a token; the running sum is no product. Cache: one sum of C features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from wattention.core.cost import Cost
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache, Mechanism, MechanismConfig


class UniformConfig(MechanismConfig):
    """No settings."""


class RunningSum:
    """The sum of all values seen so far, (B, 1, C)."""

    def __init__(self) -> None:
        self.length = 0
        self.total: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the sum."""
        return 0 if self.total is None else self.total.numel() * self.total.element_size()


class UniformAttention(AttentionModule):
    """The mean of the values so far, then the output projection."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.value = nn.Linear(shape.width, shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def new_cache(self, batch: int) -> Cache:
        """Return an empty running sum."""
        return RunningSum()

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Average causally: x (B, T, C) -> (B, T, C)."""
        sums = self.value(x).float().cumsum(dim=1)
        seen = 0
        if cache is not None:
            assert isinstance(cache, RunningSum)
            sums = sums if cache.total is None else sums + cache.total
            seen = cache.length
            cache.length, cache.total = seen + x.shape[1], sums[:, -1:].detach().clone()
        shares = 1 / torch.arange(seen + 1, seen + x.shape[1] + 1, device=x.device, dtype=sums.dtype)
        y: Tensor = self.out((sums * shares[:, None]).to(x.dtype))
        return y


def reference(parameters: Mapping[str, Tensor], x: Tensor, shape: AttentionShape, config: UniformConfig) -> Tensor:
    """Average by an explicit T x T matrix of weights."""
    T = x.shape[1]
    weights = torch.ones(T, T, dtype=x.dtype, device=x.device).tril()
    weights = weights / weights.sum(dim=1, keepdim=True)
    v = linear(x, parameters["value.weight"], parameters["value.bias"])
    return linear(weights @ v, parameters["out.weight"], parameters["out.bias"])


def cost(shape: AttentionShape, config: UniformConfig, bytes_per_element: int) -> Cost:
    """Two projections; the running sum is kept in float32."""
    B, T, C = shape.batch, shape.tokens, shape.width
    forward = 2 * B * T * C * 2 * C
    return Cost(
        parameters=2 * C * C + 2 * C,
        forward_flop=forward,
        backward_flop=2 * forward,
        hardware_forward_flop=forward,
        hardware_backward_flop=2 * forward,
        saved_bytes=2 * B * T * C * bytes_per_element + 4 * T,
        cache_bytes=4 * B * C,
    )


MECHANISM = Mechanism(
    name="uniform",
    title="Uniform attention",
    paper="none: the mean of all earlier values, a yardstick for what attention weights are worth",
    config=UniformConfig,
    build=lambda shape, config, dropout: UniformAttention(shape),
    reference=reference,
    cost=cost,
    exact=False,
    subquadratic=True,
)
