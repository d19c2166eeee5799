"""Attention within hash buckets: a token sees itself and the c latest earlier tokens that hash like it.

Idea (Reformer): softmax attention is decided by the keys nearest to the query, and vectors that are near fall into the
same bucket of a random-rotation hash. Queries and keys share one projection, k_i = q_i / |q_i|, so that one hash serves
both. Several rounds of hashing catch the pairs that one round separates.

Which tokens: in round r token i sees itself and the c most recent earlier tokens of its own bucket. Reformer cuts the
sorted tokens into chunks instead; which tokens share a chunk then depends on later tokens, so it leaks the future
although every score is masked. Here nothing about token i depends on later tokens. Two more rules:

- Itself: always seen, once. Reformer lets a token see itself only where it sees nothing else.
- Repeated pairs: a pair that m of the rounds bring together has weight m,
  y_i = Σ_j m_ij exp(s_ij) v_j / Σ_j m_ij exp(s_ij).
  Reformer divides by m; counting favours the pairs that hash alike more often, the more similar ones.

Cost: rounds × T (c + b) D, plus T D N a round of hashing. Decoding reads rounds × c + 1 keys a token.
Source: Kitaev, Kaiser and Levskaya 2020, Reformer, arXiv 2001.04451, section 2, equations 2 to 6; hash: Andoni et al.
2015, arXiv 1509.02897.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear as linear_layer
from torch.nn.functional import scaled_dot_product_attention

from wattention.core.attended import AttendedPairs
from wattention.core.cost import Cost
from wattention.core.errors import UnsupportedError, UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Cache, Limit, Mechanism, MechanismConfig
from wattention.mechanisms.caches import GrowingCache
from wattention.mechanisms.costs import statistic_bytes
from wattention.mechanisms.kernels.bucket_window import (
    LENGTH_EPS,
    bucket_window_attention,
    joined_pairs,
    keys_from_queries,
    sort_by_bucket,
)
from wattention.mechanisms.kernels.hashing import bucket_ids, random_rotations
from wattention.mechanisms.kernels.window import band_pairs
from wattention.mechanisms.multihead import join_heads, split_heads
from wattention.mechanisms.reference import heads_of, joined, linear


class LshConfig(MechanismConfig):
    """Settings of hashed attention.

    Args:
        rounds: hash rounds.
        earlier: c, the earlier tokens of its bucket that a token sees in a round; without it, a quarter of the context
            and at most 64.
        buckets: N, an even number; without it, the context divided by c. It belongs to the context, not to the length
            of one input, so that a token's bucket does not depend on how many tokens follow it.
        seed: of the rotations, which are stored in the module's ``state_dict``.
    """

    rounds: int = Field(default=4, ge=1)
    earlier: int | None = Field(default=None, ge=1)
    buckets: int | None = Field(default=None, ge=2)
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Hashing:
    """The settings that a shape leads to."""

    rounds: int
    earlier: int
    buckets: int


def hashing(shape: AttentionShape, config: LshConfig) -> Hashing:
    """Return rounds, c and N for a shape; raise ``UserError`` for c at or above the context, or an odd N."""
    T = shape.tokens
    earlier = min(max(1, T // 4), 64) if config.earlier is None else config.earlier
    if config.earlier is not None and earlier >= T:
        raise UserError(
            "more earlier tokens than the context has",
            got=f"earlier {earlier}, context {T}",
            wanted=f"at most {T - 1}",
            do="lower earlier, or lengthen the context",
        )
    buckets = max(2, 2 * round(T / (2 * earlier))) if config.buckets is None else config.buckets
    if buckets % 2:
        raise UserError(
            "buckets come in opposite pairs", got=f"buckets {buckets}", wanted=f"an even number, e.g. {buckets + 1}"
        )
    return Hashing(rounds=config.rounds, earlier=earlier, buckets=buckets)


class BucketCache:
    """Keys and values of all tokens, and for every bucket the positions of its c latest tokens.

    The o-th token of a bucket lies in slot o mod c, so a token finds its keys without a search.
    """

    def __init__(self, batch: int, heads: int, hashing: Hashing, device: torch.device) -> None:
        rows = (batch, heads, hashing.rounds)
        self._stored = GrowingCache()
        self._positions = torch.full((*rows, hashing.buckets * hashing.earlier), -1, dtype=torch.int32, device=device)
        self._counts = torch.zeros(*rows, hashing.buckets, dtype=torch.int32, device=device)
        self._earlier = hashing.earlier

    @property
    def length(self) -> int:
        """Tokens fed so far."""
        return self._stored.length

    @property
    def nbytes(self) -> int:
        """Bytes of the keys, the values, and the table of latest positions."""
        if self.length == 0:
            return 0
        return self._stored.nbytes + sum(x.numel() * x.element_size() for x in (self._positions, self._counts))

    def latest(self, ids: Tensor) -> Tensor:
        """Return the positions in the buckets of one token, -1 where a slot is empty: (B, H, rounds) -> (..., c)."""
        slots = ids.unsqueeze(-1) * self._earlier + torch.arange(self._earlier, device=ids.device)
        return self._positions.gather(-1, slots).long()

    def append(self, ids: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """Append tokens: ids (B, H, rounds, T), k and v (B, H, T, D) -> all keys and values (B, H, S, D)."""
        T, c = ids.shape[-1], self._earlier
        tokens = sort_by_bucket(ids).long()
        position, bucket = tokens % T, tokens // T
        own = torch.zeros_like(self._counts, dtype=torch.long).scatter_add_(-1, bucket, torch.ones_like(bucket))
        place = torch.arange(T, device=ids.device) - (own.cumsum(-1) - own).gather(-1, bucket)
        occurrence = place + self._counts.gather(-1, bucket)
        kept = place >= own.gather(-1, bucket) - c
        spare = self._positions.shape[-1]  # one more slot, for tokens that later ones push out
        slot = torch.where(kept, bucket * c + occurrence % c, spare)
        table = torch.nn.functional.pad(self._positions, (0, 1))
        self._positions = table.scatter_(-1, slot, (position + self.length).to(table.dtype))[..., :spare].contiguous()
        self._counts += own.to(self._counts.dtype)
        return self._stored.append(k, v)


class LshAttention(AttentionModule):
    """Multi-head hashed attention; ``qv`` projects to the shared queries and keys, and to values."""

    rotations: Tensor

    def __init__(self, shape: AttentionShape, config: LshConfig) -> None:
        super().__init__()
        self.heads = shape.heads
        self.hashing = hashing(shape, config)
        self.qv = nn.Linear(shape.width, 2 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        rounds, buckets = self.hashing.rounds, self.hashing.buckets
        self.register_buffer("rotations", random_rotations(rounds, shape.head_dim, buckets, config.seed))

    def new_cache(self, batch: int) -> Cache:
        """Return an empty cache for ``batch`` sequences."""
        return BucketCache(batch, self.heads, self.hashing, self.qv.weight.device)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C)."""
        q, v = (split_heads(part, self.heads) for part in self.qv(x).chunk(2, dim=-1))
        hashed = self._hashed(x, q)
        if cache is None:
            y = self._attend(q, v, hashed)
        else:
            assert isinstance(cache, BucketCache)
            y = self._attend_after(cache, q, v, hashed)
        projected: Tensor = self.out(join_heads(y))
        return projected

    @torch.no_grad()
    def _hashed(self, x: Tensor, q: Tensor) -> Tensor:
        """Return the queries in float32, projected once more where they were rounded to half precision."""
        # A rounded query lands in another bucket too often: decoding, which rounds elsewhere, would see other tokens.
        if statistic_bytes(q.element_size()) == q.element_size():
            return q
        with torch.autocast(x.device.type, enabled=False):
            C = x.shape[-1]
            queries = linear_layer(x.float(), self.qv.weight[:C].float(), self.qv.bias[:C].float())
        return split_heads(queries, self.heads)

    def _attend(self, q: Tensor, v: Tensor, hashed: Tensor) -> Tensor:
        return bucket_window_attention(q, v, self.rotations, earlier=self.hashing.earlier, hashed=hashed)

    def _attend_after(self, cache: BucketCache, q: Tensor, v: Tensor, hashed: Tensor) -> Tensor:
        """Attend to these tokens and those in the cache, and append them to it."""
        ids, k = bucket_ids(hashed, self.rotations), keys_from_queries(q)
        if cache.length == 0:
            cache.append(ids, k, v)
            return self._attend(q, v, hashed)
        tokens = zip(q.unbind(2), k.unbind(2), v.unbind(2), ids.unbind(-1), strict=True)
        return torch.cat([_next_token(cache, *token) for token in tokens], dim=2)


def _next_token(cache: BucketCache, q: Tensor, k: Tensor, v: Tensor, ids: Tensor) -> Tensor:
    """Attend with one token, q, k, v (B, H, D) and ids (B, H, rounds), and append it -> (B, H, 1, D)."""
    seen = cache.latest(ids).flatten(2)
    own = torch.full_like(seen[..., :1], cache.length)
    seen = torch.cat((seen, own), dim=-1)
    keys, values = cache.append(ids.unsqueeze(-1), k.unsqueeze(2), v.unsqueeze(2))
    rows = seen.clamp(min=0).unsqueeze(-1).expand(*seen.shape, q.shape[-1])
    return scaled_dot_product_attention(
        q.unsqueeze(2), keys.gather(2, rows), values.gather(2, rows), attn_mask=(seen >= 0).unsqueeze(2)
    )


def build(shape: AttentionShape, config: LshConfig, dropout: float) -> LshAttention:
    """Build the layer; raise ``UserError`` as :func:`hashing` does, ``UnsupportedError`` for dropout."""
    if dropout:
        raise UnsupportedError(
            "the bucket kernel drops no attention weights", got=f"dropout {dropout}", wanted="0", do="set it to 0"
        )
    return LshAttention(shape, config)


def reference(parameters: Mapping[str, Tensor], x: Tensor, shape: AttentionShape, config: LshConfig) -> Tensor:
    """Count for every pair the rounds in which the query sees the key, and weight its exponential with that count.

    A bucket is a decision, not a rounded number: two directions may be equally near up to rounding, and then float32
    and float64 may decide differently. The decision is therefore taken on a float32 projection in every precision.
    """
    settings = hashing(shape, config)
    q, v = (heads_of(part, shape.heads) for part in linear(parameters, "qv", x).chunk(2, dim=-1))
    k = q / torch.sqrt((q * q).sum(-1, keepdim=True) + LENGTH_EPS)
    narrow = linear_layer(x.float(), parameters["qv.weight"].float(), parameters["qv.bias"].float())
    hashed = heads_of(narrow.chunk(2, dim=-1)[0], shape.heads)
    counts = times_seen(bucket_ids(hashed, parameters["rotations"]), settings.earlier)
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / shape.head_dim**0.5
    weights = torch.softmax(scores + counts.to(x).log(), dim=-1)
    return linear(parameters, "out", joined(torch.einsum("bhts,bhsd->bhtd", weights, v)))


def times_seen(ids: Tensor, earlier: int) -> Tensor:
    """Return how many rounds show key s to query t, and 1 for t itself: ids (B, H, rounds, T) -> (B, H, T, T)."""
    same = ids.unsqueeze(-1) == ids.unsqueeze(-2)
    before = same.tril(-1)
    later_or_same = before.flip(-1).cumsum(-1).flip(-1)  # how many visible keys are as recent as this one
    seen = (before & (later_or_same <= earlier)).sum(2)
    return seen + torch.eye(ids.shape[-1], dtype=seen.dtype)


def cost(shape: AttentionShape, config: LshConfig, bytes_per_element: int) -> Cost:
    """Return the cost; hardware FLOPs are exact.

    How many pairs share a bucket is in the data: model FLOPs count every token with c earlier tokens of its bucket (or
    all its earlier tokens, where they are fewer), which is the most there can be.
    """
    B, T, C, H, D = shape.batch, shape.tokens, shape.width, shape.heads, shape.head_dim
    settings = hashing(shape, config)
    R, N, c = settings.rounds, settings.buckets, settings.earlier
    projections = 2 * B * T * C * 3 * C
    hashing_flop = B * H * R * T * D * N
    projected_again = 2 * B * T * C * C if bytes_per_element < 4 else 0  # queries in float32, for the hash
    product_model = 2 * B * H * D * R * band_pairs(T, c + 1)
    product_hardware = 2 * D * R * joined_pairs(B, H, T, c)
    table_bytes = 4 * B * H * R * N * (c + 1)
    return Cost(
        parameters=3 * C * C + 3 * C,
        forward_flop=projections + hashing_flop + 2 * product_model,
        backward_flop=2 * projections + 4 * product_model,
        hardware_forward_flop=projections + projected_again + hashing_flop + 2 * product_hardware,
        hardware_backward_flop=2 * projections + 5 * product_hardware,
        # x; q, v; the output, which out reads too; the log-sum-exp; sorted tokens
        saved_bytes=4 * B * T * C * bytes_per_element + B * H * T * (statistic_bytes(bytes_per_element) + 4 * R),
        cache_bytes=2 * B * T * C * bytes_per_element + table_bytes,
    )


def attends(shape: AttentionShape, config: LshConfig) -> AttendedPairs:
    """In every round a query sees itself and at most c earlier tokens, neighbours in the sorted order."""
    H, D, plan = shape.heads, shape.head_dim, hashing(shape, config)
    return AttendedPairs(
        heads=H,
        kv_heads=H,
        key_dim=D,
        value_dim=D,
        window=plan.earlier + 1,
        rounds=plan.rounds,
        data_dependent=True,
    )


MECHANISM = Mechanism(
    name="lsh",
    title="Hashed attention (LSH)",
    paper="Kitaev, Kaiser and Levskaya 2020, Reformer, arXiv 2001.04451, section 2, equations 2 to 6, with the keys of "
    "a query chosen causally; hash of Andoni et al. 2015, arXiv 1509.02897",
    config=LshConfig,
    build=build,
    reference=reference,
    cost=cost,
    exact=False,
    attends=attends,
    subquadratic=True,
    causal_rounding="later tokens shift where a bucket lies in the sorted order, so the blocks of the kernel, and the "
    "order of its sums, move; which keys a token sees does not",
    limits=(
        Limit(what="dropout", why="the kernels that do the blocks do not drop attention weights"),
        Limit(what="second derivatives", why="the backward pass is written by hand and has no derivative of its own"),
        Limit(
            what="gradients of the hash", why="a bucket is a discrete choice; gradients flow through scores and values"
        ),
        Limit(
            what="the same bits from every kernel and precision",
            why="where two directions are equally near up to rounding, another order of sums in the projection may put "
            "a token in another bucket",
        ),
    ),
)
