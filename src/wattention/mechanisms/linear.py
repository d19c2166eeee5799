"""Causal linear attention: a product of positive features in place of the softmax, so the past is one D × D state.

Idea: with features φ in place of exp(q·k), the sums over earlier tokens no longer depend on the query,

    y_i = φ(q_i)ᵀ S_i / (φ(q_i)ᵀ z_i + ε),   S_i = S_{i−1} + φ(k_i) v_iᵀ,   z_i = z_{i−1} + φ(k_i),   φ(x) = elu(x) + 1

so training is linear in T, and decoding keeps S and z, whatever the length.
Cost: the pairs within chunks of c tokens and one state a chunk, T (c + D) D; decoding D² a token and head.
Source: Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, equations 7, 9 to 12 and 16 to 20.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from wattention.core.attended import AttendedPairs
from wattention.core.cost import Cost
from wattention.core.errors import UnsupportedError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import Cache, Limit, Mechanism, MechanismConfig
from wattention.mechanisms.costs import statistic_bytes
from wattention.mechanisms.kernels.causal_linear import (
    FEATURE_MAPS,
    causal_linear_attention,
    causal_sums,
    chunk_tokens,
)
from wattention.mechanisms.kernels.precision import accumulator
from wattention.mechanisms.multihead import MultiHeadAttention, join_heads, split_heads
from wattention.mechanisms.reference import heads_of, joined, linear


class LinearConfig(MechanismConfig):
    """Settings of linear attention.

    Args:
        feature_map: φ. ``elu+1`` is the paper's; ``relu`` is that of Kasai et al. 2021 (arXiv 2103.13076) without their
            learned affine map; ``softmax`` normalises the features of each query and key (after Shen et al. 2021,
            arXiv 1812.01243, who normalise keys over tokens, which is not causal).
        eps: ε, added to the denominator, so that features that are all zero give zero.
    """

    feature_map: Literal["elu+1", "relu", "softmax"] = "elu+1"
    eps: float = Field(default=1e-6, ge=0, allow_inf_nan=False)


class StateCache:
    """The state of every head, S (B, H, D, D) and z (B, H, D), in the dtype of sums."""

    def __init__(self, state: Tensor, normaliser: Tensor) -> None:
        self.state, self.normaliser = state, normaliser
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens fed so far."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes of the state, the same for any number of tokens above 0."""
        if self._length == 0:
            return 0
        return sum(x.numel() * x.element_size() for x in (self.state, self.normaliser))

    def add(self, k: Tensor, v: Tensor) -> None:
        """Add tokens: features k and values v (B, H, T, D)."""
        self.state += k.mT @ v
        self.normaliser += k.sum(-2)
        self._length += k.shape[-2]


class LinearAttention(MultiHeadAttention):
    """Multi-head causal linear attention."""

    def __init__(self, shape: AttentionShape, config: LinearConfig) -> None:
        super().__init__(shape)
        self.feature_map = FEATURE_MAPS[config.feature_map]
        self.eps = config.eps
        self.head_dim = shape.head_dim

    def new_cache(self, batch: int) -> Cache:
        """Return a zero state for ``batch`` sequences."""
        H, D, like = self.heads, self.head_dim, self.qkv.weight
        state = torch.zeros(batch, H, D, D, dtype=accumulator(like.dtype), device=like.device)
        return StateCache(state, torch.zeros_like(state[..., 0]))

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C)."""
        if cache is None:
            return super().forward(x)
        assert isinstance(cache, StateCache)
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        projected: Tensor = self.out(join_heads(self._attend_from(cache, q, k, v)))
        return projected

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to all tokens given: q, k, v (B, H, T, D) -> (B, H, T, D)."""
        return causal_linear_attention(q, k, v, self.feature_map, self.eps)

    @torch.no_grad()
    def _attend_from(self, cache: StateCache, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to these tokens and those in the state, and add them to it; without a graph."""
        dtype = v.dtype
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = (x.to(cache.state.dtype) for x in (q, k, v))
            q, k = self.feature_map.apply(q), self.feature_map.apply(k)
            new, new_ones = causal_sums(*(x.flatten(0, 1) for x in (q, k, v)))
            numerator = new.view_as(q) + q @ cache.state
            denominator = new_ones.view(q.shape[:-1]) + (q @ cache.normaliser.unsqueeze(-1)).squeeze(-1)
            cache.add(k, v)
            return (numerator / (denominator + self.eps).unsqueeze(-1)).to(dtype)


def build(shape: AttentionShape, config: LinearConfig, dropout: float) -> LinearAttention:
    """Build the layer; raise ``UnsupportedError`` for dropout on weights that are never formed."""
    if dropout:
        raise UnsupportedError(
            "linear attention has no attention weights to drop", got=f"dropout {dropout}", wanted="0", do="set it to 0"
        )
    return LinearAttention(shape, config)


def _features(z: Tensor, config: LinearConfig) -> Tensor:
    if config.feature_map == "elu+1":
        return torch.where(z > 0, z + 1, torch.exp(z))
    return torch.relu(z) if config.feature_map == "relu" else torch.exp(z) / torch.exp(z).sum(-1, keepdim=True)


def reference(parameters: Mapping[str, Tensor], x: Tensor, shape: AttentionShape, config: LinearConfig) -> Tensor:
    """The recurrence, one token after the other (equations 16 to 20)."""
    q, k, v = (heads_of(part, shape.heads) for part in linear(parameters, "qkv", x).chunk(3, dim=-1))
    q, k = _features(q, config), _features(k, config)
    B, H, T, D = q.shape
    state, normaliser = x.new_zeros(B, H, D, D), x.new_zeros(B, H, D)
    y = []
    for i in range(T):
        state = state + torch.einsum("bhd,bhe->bhde", k[:, :, i], v[:, :, i])
        normaliser = normaliser + k[:, :, i]
        numerator = torch.einsum("bhd,bhde->bhe", q[:, :, i], state)
        denominator = torch.einsum("bhd,bhd->bh", q[:, :, i], normaliser) + config.eps
        y.append(numerator / denominator[..., None])
    return linear(parameters, "out", joined(torch.stack(y, dim=2)))


def cost(shape: AttentionShape, config: LinearConfig, bytes_per_element: int) -> Cost:
    """Return the exact cost of the chunked form.

    Model FLOPs are those of the pairs i >= j within each chunk and of the states that are read. The hardware also
    multiplies masked pairs and the zeros that fill the last chunk, and its backward pass forms pairs and states again.
    """
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    c = chunk_tokens(T)
    chunks = -(-T // c)
    last = T - (chunks - 1) * c
    pairs = (chunks - 1) * c * (c + 1) // 2 + last * (last + 1) // 2
    filled, after_first = chunks * c, chunks * c - c
    model = 2 * 2 * D * pairs + 2 * D * D * (T - last) + 2 * D * (D + 1) * (T - min(c, T))
    forward = 2 * D * (2 * c * filled + D * filled + (D + 1) * after_first)
    backward = 2 * D * (5 * c * filled + (2 * D + 1) * filled + (3 * D + 1) * after_first)
    projections = 2 * B * T * C * 4 * C
    statistic = statistic_bytes(bytes_per_element)
    return Cost(
        parameters=4 * C * C + 4 * C,
        forward_flop=projections + B * H * model,
        backward_flop=2 * (projections + B * H * model),
        hardware_forward_flop=projections + B * H * forward,
        hardware_backward_flop=2 * projections + B * H * backward,
        saved_bytes=5 * B * T * C * bytes_per_element + B * H * T * statistic,  # x; q, k, v; y; the denominator
        cache_bytes=B * H * D * (D + 1) * statistic,
    )


def attends(shape: AttentionShape, config: LinearConfig) -> AttendedPairs:
    """A running sum over the keys; φ keeps the head dimension."""
    H, D = shape.heads, shape.head_dim
    return AttendedPairs(form="linear", heads=H, kv_heads=H, key_dim=D, value_dim=D)


MECHANISM = Mechanism(
    name="linear",
    title="Linear attention",
    paper="Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236, equations 7, 9 to 12 and 16 to 20",
    config=LinearConfig,
    build=build,
    reference=reference,
    cost=cost,
    exact=False,
    attends=attends,
    subquadratic=True,
    limits=(
        Limit(what="dropout", why="the weights it would act on are never formed"),
        Limit(what="second derivatives", why="the backward pass is written by hand and has no derivative of its own"),
        Limit(what="gradients through a cache", why="decoding updates its state in place"),
    ),
)
