"""Multi-head latent attention (DeepSeek-V2): keys and values come from one low-rank latent, and only it is cached.

Idea, with the paper's equations (DeepSeek-AI 2024, arXiv 2405.04434, sections 2.1.2 and 2.1.3)::

    c = RMSNorm(W_DKV x)            latent of R features a token                       (9)
    k_C, v = W_UK c, W_UV c         D features a head                                  (10), (11)
    c_Q = RMSNorm(W_DQ x)           optional query compression                         (12)
    q_C = W_UQ c_Q                  or W_Q x without compression                       (13)
    q_R, k_R = RoPE(W_QR c_Q), RoPE(W_KR x)   k_R is one for all heads                 (14), (15)
    o = softmax([q_C; q_R] [k_C; k_R]^T / sqrt(D + D_R)) v,   y = W_O o                (16) to (19)

The norms are those of the released model; the text of the paper leaves them out of the equations. No layer has a bias,
as there. Training and the first prefill run the fused kernel, which wants one head dim: v is padded from D to D + D_R
with zeros, and the record counts that. Decoding never forms k_C or v: W_UK moves to the query side and W_UV to the
output side (section 2.1.2, last paragraph), so that the heads attend over the R + D_R cached features themselves.
RoPE turns neighbouring features (Su et al. 2021, arXiv 2104.09864, equation 34).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout, pad, rms_norm, scaled_dot_product_attention

from wattention.core.attended import AttendedPairs
from wattention.core.cost import Cost
from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache, Limit, Mechanism, MechanismConfig
from wattention.mechanisms.caches import GrowingCache
from wattention.mechanisms.costs import statistic_bytes, tiled_causal_pairs
from wattention.mechanisms.multihead import join_heads
from wattention.mechanisms.reference import causal, joined, linear, softmax_attention

_EPS = 1e-6


class MlaConfig(MechanismConfig):
    """Settings; what is left out follows the shape.

    Args:
        kv_rank: R; by default the paper's 4 D, at most C / 3 (in steps of 8), which is 256 for GPT-2.
        rope_dim: D_R, even; by default the paper's D / 2.
        query_rank: rank of the query compression; by default none, as in the paper's lite model.
        rope_base: base of the rotary frequencies.
    """

    kv_rank: int | None = Field(default=None, ge=1)
    rope_dim: int | None = Field(default=None, ge=2)
    query_rank: int | None = Field(default=None, ge=1)
    rope_base: float = Field(default=10_000.0, gt=1)


def kv_rank(shape: AttentionShape, config: MlaConfig) -> int:
    """Return R for a shape."""
    if config.kv_rank is not None:
        return config.kv_rank
    rank = min(4 * shape.head_dim, shape.width // 3)
    return max(rank - rank % 8, min(8, shape.width))


def rope_dim(shape: AttentionShape, config: MlaConfig) -> int:
    """Return D_R for a shape; raise ``UserError`` for an odd wish."""
    if config.rope_dim is None:
        return max(2, shape.head_dim // 2 // 2 * 2)
    if config.rope_dim % 2:
        raise UserError("RoPE turns pairs of features", got=f"rope_dim {config.rope_dim}", wanted="an even rope_dim")
    return config.rope_dim


def turns(x: Tensor, start: int, features: int, base: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin (T, 1, D_R / 2) for x (B, T, ...) whose first token is at ``start``; angles in float64."""
    wide = torch.float32 if x.device.type == "mps" else torch.float64
    frequency = base ** -(torch.arange(0, features, 2, device=x.device, dtype=wide) / features)
    angle = torch.arange(start, start + x.shape[1], device=x.device, dtype=wide)[:, None, None] * frequency
    return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply RoPE to x (B, T, heads, D_R)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class LatentNorm(nn.RMSNorm):
    """RMSNorm in the dtype of its input, so that the latents, and the cache of them, stay narrow under autocast.

    CUDA's autocast would turn it to float32 (``rms_norm`` is in AT_FORALL_FP32 of torch's autocast_mode.h, the CPU's
    list has no norm); torch's kernels sum in float32 either way.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (..., features)."""
        assert self.weight is not None
        with torch.autocast(x.device.type, enabled=False):
            return rms_norm(x, list(self.normalized_shape), self.weight.to(x.dtype), self.eps)


class LatentAttention(AttentionModule):
    """Multi-head latent attention; ``down`` gives [latent; rotary key], ``up`` gives [keys; values] of each head."""

    def __init__(self, shape: AttentionShape, config: MlaConfig, dropout: float) -> None:
        super().__init__()
        C, H, D = shape.width, shape.heads, shape.head_dim
        R, rope = kv_rank(shape, config), rope_dim(shape, config)
        self.heads, self.head_dim, self.rank, self.rope_dim = H, D, R, rope
        self.rope_base, self.dropout = config.rope_base, dropout
        self.query: nn.Module
        if config.query_rank is None:
            self.query = nn.Linear(C, H * (D + rope), bias=False)
        else:
            self.query_down = nn.Linear(C, config.query_rank, bias=False)
            self.query_norm = LatentNorm(config.query_rank, eps=_EPS)
            self.query = nn.Linear(config.query_rank, H * (D + rope), bias=False)
        self.compressed_query = config.query_rank is not None
        self.down = nn.Linear(C, R + rope, bias=False)
        self.norm = LatentNorm(R, eps=_EPS)
        self.up = nn.Linear(R, 2 * H * D, bias=False)
        self.out = nn.Linear(H * D, C, bias=False)

    def new_cache(self, batch: int) -> Cache:
        """Return an empty cache of R + D_R features a token, shared by all heads."""
        return GrowingCache()

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C)."""
        start = 0 if cache is None else cache.length
        query, latent, rotary_key = self._project(x, start)
        if cache is not None:
            assert isinstance(cache, GrowingCache)
            (held,) = cache.append(torch.cat((latent, rotary_key), dim=-1))
        attended = self._expanded(query, latent, rotary_key) if start == 0 else self._absorbed(query, held)
        projected: Tensor = self.out(attended)
        return projected

    def _project(self, x: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, T, H, D + D_R), latents (B, T, R) and rotary keys (B, T, D_R)."""
        B, T, _ = x.shape
        query = self.query(self.query_norm(self.query_down(x)) if self.compressed_query else x)
        plain, rotary = query.view(B, T, self.heads, -1).split([self.head_dim, self.rope_dim], dim=-1)
        latent, rotary_key = self.down(x).split([self.rank, self.rope_dim], dim=-1)
        cos, sin = turns(rotary, start, self.rope_dim, self.rope_base)
        query = torch.cat((plain, rotate(rotary, cos, sin)), dim=-1)
        return query, self.norm(latent), rotate(rotary_key[:, :, None], cos, sin)[:, :, 0]

    def _expanded(self, query: Tensor, latent: Tensor, rotary_key: Tensor) -> Tensor:
        """Attend with keys and values written out, on the fused kernel -> (B, T, H * D)."""
        B, T, H, D = *query.shape[:3], self.head_dim
        plain_key, value = self.up(latent).view(B, T, 2, H, D).unbind(2)
        key = torch.cat((plain_key, rotary_key[:, :, None].expand(B, T, H, self.rope_dim)), dim=-1)
        attended = scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            pad(value, (0, self.rope_dim)).transpose(1, 2),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
        )
        return join_heads(attended[..., :D]).contiguous()

    def _absorbed(self, query: Tensor, held: Tensor) -> Tensor:
        """Attend over the cached latents themselves: held (B, S, R + D_R) -> (B, T, H * D)."""
        B, T, H, D, R = *query.shape[:3], self.head_dim, self.rank
        S = held.shape[1]
        key_up, value_up = self.up.weight.view(2, H, D, R)
        plain, rotary = torch.split(query, [D, self.rope_dim], dim=-1)
        absorbed = torch.cat((torch.einsum("bthd,hdr->bhtr", plain, key_up), rotary.transpose(1, 2)), dim=-1)
        scores = absorbed.reshape(B, H * T, -1) @ held.transpose(1, 2) / math.sqrt(D + self.rope_dim)
        if T > 1:
            hidden = torch.full((T, S), -math.inf, dtype=scores.dtype, device=scores.device).triu_(S - T + 1)
            scores = (scores.view(B, H, T, S) + hidden).view(B, H * T, S)
        weights = dropout(torch.softmax(scores, dim=-1), self.dropout, self.training).to(held.dtype)
        mixed = (weights @ held[..., :R]).view(B, H, T, R)
        return torch.einsum("bhtr,hdr->bthd", mixed, value_up).reshape(B, T, H * D)


def build(shape: AttentionShape, config: MlaConfig, dropout: float) -> LatentAttention:
    """Build the layer; ``dropout`` acts on the attention weights and changes the kernel on a CPU."""
    return LatentAttention(shape, config, dropout)


def reference(parameters: Mapping[str, Tensor], x: Tensor, shape: AttentionShape, config: MlaConfig) -> Tensor:
    """Equations 9 to 19 one after the other."""
    B, T, _ = x.shape
    H, D, R, rope = shape.heads, shape.head_dim, kv_rank(shape, config), rope_dim(shape, config)

    def rms_norm(name: str, c: Tensor) -> Tensor:
        return c / torch.sqrt((c * c).mean(-1, keepdim=True) + _EPS) * parameters[f"{name}.weight"]

    def turned(z: Tensor) -> Tensor:
        frequency = config.rope_base ** (-torch.arange(0, rope, 2, dtype=torch.float64) / rope)
        angle = torch.arange(T, dtype=torch.float64)[:, None] * frequency
        turn = torch.zeros(T, rope, rope, dtype=torch.float64)  # block-diagonal rotation of every position
        for i in range(rope // 2):
            turn[:, 2 * i, 2 * i] = turn[:, 2 * i + 1, 2 * i + 1] = angle[:, i].cos()
            turn[:, 2 * i + 1, 2 * i] = angle[:, i].sin()
            turn[:, 2 * i, 2 * i + 1] = -angle[:, i].sin()
        return torch.einsum("tij,bthj->bthi", turn.to(z), z)

    c_q = x if config.query_rank is None else rms_norm("query_norm", linear(parameters, "query_down", x))
    q_c, q_r = torch.split(linear(parameters, "query", c_q).reshape(B, T, H, D + rope), [D, rope], dim=-1)
    c, k_r = torch.split(linear(parameters, "down", x), [R, rope], dim=-1)
    k_c, v = linear(parameters, "up", rms_norm("norm", c)).reshape(B, T, 2, H, D).unbind(2)
    k_r = turned(k_r.reshape(B, T, 1, rope)).expand(B, T, H, rope)
    q, k = torch.cat((q_c, turned(q_r)), dim=-1), torch.cat((k_c, k_r), dim=-1)
    attended = softmax_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal(T))
    return linear(parameters, "out", joined(attended))


def cost(shape: AttentionShape, config: MlaConfig, bytes_per_element: int) -> Cost:
    """Return the exact cost; the hardware multiplies values padded to D + D_R."""
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    R, rope = kv_rank(shape, config), rope_dim(shape, config)
    query_features, query_rank = H * (D + rope), config.query_rank
    query_weights = C * query_features if query_rank is None else (C + query_features) * query_rank
    weights = query_weights + C * (R + rope) + 2 * R * H * D + H * D * C
    projections = 2 * B * T * weights
    scores_model = 2 * B * H * (D + rope) * shape.causal_pairs
    values_model = 2 * B * H * D * shape.causal_pairs
    product_hardware = 2 * B * H * (D + rope) * tiled_causal_pairs(T)
    statistic = statistic_bytes(bytes_per_element)
    saved = bytes_per_element * B * T * C  # x
    if query_rank is not None:
        saved += _norm_saved_bytes(B * T, query_rank, query_rank, bytes_per_element)
    saved += _norm_saved_bytes(B * T, R, R + rope, bytes_per_element)
    saved += bytes_per_element * T * rope  # cos and sin
    saved += bytes_per_element * B * T * (4 * query_features + H * D)  # q, k, padded v and output; what out reads
    saved += statistic * B * H * T  # log-sum-exp
    return Cost(
        parameters=weights + R + (query_rank or 0),
        forward_flop=projections + scores_model + values_model,
        backward_flop=2 * (projections + scores_model + values_model),
        hardware_forward_flop=projections + 2 * product_hardware,
        hardware_backward_flop=2 * projections + 5 * product_hardware,
        saved_bytes=saved,
        cache_bytes=B * T * (R + rope) * bytes_per_element,
    )


def _norm_saved_bytes(rows: int, features: int, input_features: int, bytes_per_element: int) -> int:
    """Return what torch's RMSNorm keeps, and its output: in float32 or wider the input where it lies, else a copy."""
    statistic = statistic_bytes(bytes_per_element)
    kept_input = input_features if statistic == bytes_per_element else features
    return rows * (statistic * (kept_input + 1 + features) + bytes_per_element * features)


def attends(shape: AttentionShape, config: MlaConfig) -> AttendedPairs:
    """In training keys and values are expanded: D + D_R features of a key and D of a value, padded for the kernel."""
    H, D = shape.heads, shape.head_dim
    wide = D + rope_dim(shape, config)
    return AttendedPairs(heads=H, kv_heads=H, key_dim=wide, value_dim=D, kernel_value_dim=wide)


MECHANISM = Mechanism(
    name="mla",
    title="Multi-head latent attention",
    paper="DeepSeek-AI 2024, DeepSeek-V2, arXiv 2405.04434, section 2.1, equations 9 to 19",
    config=MlaConfig,
    build=build,
    reference=reference,
    cost=cost,
    exact=True,
    attends=attends,
    subquadratic=False,
    heads_sharing=lambda shape, config: shape.heads,
    limits=(
        Limit(
            what="dropout at the cost of the record",
            why="on a CPU dropout moves torch to its math kernel, which forms T x T weights",
        ),
        Limit(
            what="several tokens after a filled cache in linear memory",
            why="absorbed decoding forms H x T x S scores; feed a long prompt in one piece",
        ),
        Limit(
            what="the YaRN long-context scaling of the released model",
            why="it belongs to fine-tuning for 128K tokens, not to the mechanism",
        ),
    ),
)
