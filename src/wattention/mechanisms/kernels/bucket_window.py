"""Softmax attention within hash buckets: query i sees itself and the c latest earlier tokens of its bucket.

Idea: in the order (bucket, position) those c + 1 keys are neighbours, so one hash round is band attention over sorted
tokens, masked where the bucket changes. Rounds are merged by their log-sum-exps: with L_ri of round r

    L_i = log Σ_r exp(L_ri)        out_i = Σ_r exp(L_ri − L_i) out_ri

which is one softmax over the multiset of the pairs of all rounds: a pair that m rounds bring together has weight m.
Every round contains the pair (i, i), whose score gets −log(rounds), so that it counts once. The gradient of a round
is that of the band with the weights exp(s_ij − L_i): it needs L and out over all rounds and nothing else of a round.

Keys are the queries divided by their length, k_i = q_i / sqrt(|q_i|² + ε) (Kitaev et al. 2020, arXiv 2001.04451,
section 2: shared-QK attention, and the sum over rounds, without its correction for repeated pairs).

Cost: time rounds × T (c + b) D plus a sort, memory T D; nothing of size T × T. Kept for the backward: q, v, out, L and
the sorted tokens of each round. A few heads are worked on at a time, as one sequence whose buckets are (head, bucket).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from wattention.mechanisms.kernels.hashing import bucket_ids
from wattention.mechanisms.kernels.precision import accumulator, without_autocast
from wattention.mechanisms.kernels.rounds import (
    alike,
    groups_of_heads,
    heads_at_a_time,
    in_one_row,
    on_cpu,
)
from wattention.mechanisms.kernels.window import (
    BlockKernel,
    Piece,
    Saved,
    add_overlapping,
    band_mask,
    block_backward,
    block_forward,
    block_kernel,
    block_tokens,
    keys_of,
    queries_of,
)
from wattention.mechanisms.target import target_of

LENGTH_EPS = 1e-12
"""ε of a key's length: a zero query has a zero key."""


def keys_from_queries(q: Tensor) -> Tensor:
    """Return q (..., D) divided by its length, in the dtype of q."""
    wide = q.to(accumulator(q.dtype))
    return (wide * _inverse_length(wide)).to(q.dtype)


def bucket_window_attention(
    q: Tensor,
    v: Tensor,
    rotations: Tensor,
    *,
    earlier: int,
    hashed: Tensor | None = None,
    kernel: BlockKernel | None = None,
) -> Tensor:
    """Attend within buckets.

    Args:
        q, v: (B, H, T, D), any strides; q also makes the keys.
        rotations: (rounds, D, N / 2) of the hash.
        earlier: c, the earlier tokens of its bucket that a query sees beside itself.
        hashed: (B, H, T, D), what is hashed; None is q.
        kernel: ``flash`` or ``matmul``; None is the device's own.

    Returns:
        (B, H, T, D) in the dtype of q, on a CPU a view of a contiguous (B, T, H, D) tensor.
    """
    kernel = block_kernel(q.device) if kernel is None else kernel
    hashed = q.detach() if hashed is None else hashed
    joined = (in_one_row(q), in_one_row(v), (in_one_row(hashed), rotations))
    out: Tensor = _BucketWindow.apply(*joined, earlier, kernel)  # type: ignore[no-untyped-call]
    return out.view(q.shape)


class _BucketWindow(torch.autograd.Function):
    @staticmethod
    @without_autocast
    def forward(
        ctx: Any, q: Tensor, v: Tensor, hashing: tuple[Tensor, Tensor], earlier: int, kernel: BlockKernel
    ) -> Tensor:
        B, H, T, D = q.shape
        hashed, rotations = hashing
        rounds, buckets = rotations.shape[0], 2 * rotations.shape[2]
        assert buckets * T < 2**31, "tokens sorted by bucket are int32"
        wide = accumulator(q.dtype)
        out = torch.empty(B, T, H, D, dtype=q.dtype, device=q.device).transpose(1, 2)
        lse = torch.empty(B, H, T, dtype=wide, device=q.device)
        tokens = torch.empty(B, H, rounds, T, dtype=torch.int32, device=q.device)
        scratch_of = _by_group(q, partial(_Scratch, q, earlier, inputs=3))

        def attend(part: tuple[int, slice]) -> None:
            scratch = scratch_of()
            tokens[part] = sort_by_bucket(bucket_ids(hashed[part], rotations))
            qs = _joined(q[part])
            qkv = (qs, keys_from_queries(qs), _joined(v[part]))
            order = _orders(tokens[part], buckets, earlier, q)
            merged, merged_lse = order(0).attend(qkv, scratch, kernel)
            merged = merged.to(wide)
            for r in alike(range(1, rounds)):
                merged_lse = _merge(merged, merged_lse, *order(r).attend(qkv, scratch, kernel))
            out[part], lse[part] = merged.view(-1, T, D), merged_lse.view(-1, T)

        for part in groups_of_heads(q, T):
            attend(part)
        ctx.save_for_backward(q, v, out, lse, tokens)
        ctx.buckets, ctx.earlier, ctx.kernel = buckets, earlier, kernel
        return out

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, v, out, lse, tokens = ctx.saved_tensors
        T, D = q.shape[2:]
        dq, dv = torch.empty_like(q), torch.empty_like(v)
        scratch_of = _by_group(q, partial(_BackwardScratch, q, ctx.earlier, ctx.kernel))

        def pull_back(part: tuple[int, slice]) -> None:
            scratch = scratch_of()
            qs = _joined(q[part])
            inputs = (qs, keys_from_queries(qs), *(_joined(x[part]) for x in (v, out, g)))
            sums = torch.zeros(3, *qs.shape, dtype=lse.dtype, device=q.device)
            order = _orders(tokens[part], ctx.buckets, ctx.earlier, q)
            for r in alike(range(tokens.shape[2])):
                order(r).pull_back(inputs, lse[part].reshape(-1), sums, scratch, ctx.kernel)
            dqs, dks, dvs = sums
            dq[part] = (dqs + _pull_back_keys(qs.to(lse.dtype), dks)).view(-1, T, D)
            dv[part] = dvs.view(-1, T, D)

        for part in groups_of_heads(q, T):
            pull_back(part)
        return dq, dv, None, None, None


class _Scratch:
    """Buffers for a group of heads that every round writes anew, for q (B, H, T, D).

    Fresh memory costs the zeroing of its pages, in every round again.

    Args:
        inputs: how many are sorted.
    """

    def __init__(self, q: Tensor, earlier: int, *, inputs: int) -> None:
        H, T, D = q.shape[1:]
        self.tokens = T * heads_at_a_time(H, T, on_cpu=on_cpu(q))
        piece = _blocks(self.tokens, earlier)
        self.places = earlier + piece.blocks * piece.queries
        self._sorted = [torch.empty(self.places, D, dtype=q.dtype, device=q.device) for _ in range(inputs)]

    def sorted(self, inputs: tuple[Tensor, ...], source: Tensor) -> Iterator[Tensor]:
        """Yield the tokens of the inputs, (S, D), at all places of the sorted sequence: (1, places, D)."""
        for x, buffer in zip(inputs, self._sorted, strict=True):
            yield torch.index_select(x, 0, source, out=buffer)[None]


class _BackwardScratch(_Scratch):
    """... and for the backward pass: sorted log-sum-exp, gradients of sorted keys and values, and both in place."""

    def __init__(self, q: Tensor, earlier: int, kernel: BlockKernel) -> None:
        super().__init__(q, earlier, inputs=5)
        D, wide = q.shape[-1], accumulator(q.dtype)
        self.lse = torch.empty(self.places, dtype=wide, device=q.device)
        self.added = torch.empty(self.places, D, dtype=wide, device=q.device)
        self.dq = torch.empty(self.tokens, D, dtype=q.dtype if kernel == "flash" else wide, device=q.device)
        self.dk = torch.empty(self.tokens, D, dtype=wide, device=q.device)


Scratch = TypeVar("Scratch", bound=_Scratch)


def _by_group(q: Tensor, make: Callable[[], Scratch]) -> Callable[[], Scratch]:
    """Return what gives a group of heads its scratch.

    On a CPU all groups share one; a GPU's allocator keeps what is freed, and each group has its own.
    """
    if not on_cpu(q):
        return make
    shared = make()
    return lambda: shared


@dataclass(frozen=True, kw_only=True)
class _Order:
    """One hash round of several heads as one sequence of S tokens in the order of (head, bucket, position).

    Args:
        source: for each place of the sorted sequence the token that stands there; c more places come before the first
            token and some after the last, so that all blocks are alike.
        place: (S) for each token its place among the tokens.
        mask: (n, 1, b, b + c) what is added to the scores of each block.
        piece: the blocks.
    """

    source: Tensor
    place: Tensor
    mask: Tensor
    piece: Piece

    def attend(self, qkv: tuple[Tensor, ...], scratch: _Scratch, kernel: BlockKernel) -> tuple[Tensor, Tensor]:
        """Attend in this order: q, k, v (S, D) -> out (S, D), log-sum-exp (S), in the order of tokens."""
        q, k, v = scratch.sorted(qkv, self.source)
        out, lse = block_forward(
            queries_of(q, self.piece), keys_of(k, self.piece), keys_of(v, self.piece), self.mask, kernel
        )
        return out.reshape(-1, out.shape[-1]).index_select(0, self.place), lse.reshape(-1).index_select(0, self.place)

    def pull_back(
        self, inputs: tuple[Tensor, ...], lse: Tensor, sums: Tensor, scratch: _BackwardScratch, kernel: BlockKernel
    ) -> None:
        """Add the gradients of q, k and v to sums (3, S, D): inputs q, k, v, out, g (S, D), lse (S)."""
        q, k, v, out, g = scratch.sorted(inputs, self.source)
        torch.index_select(lse, 0, self.source, out=scratch.lse)
        saved = Saved(
            q=queries_of(q, self.piece),
            k=keys_of(k, self.piece),
            v=keys_of(v, self.piece),
            out=queries_of(out, self.piece),
            lse=queries_of(scratch.lse[None, :, None], self.piece).squeeze(-1),
        )
        dq, *dkv = block_backward(queries_of(g, self.piece), saved, self.mask, kernel)
        sums[0] += torch.index_select(dq.reshape(-1, dq.shape[-1]), 0, self.place, out=scratch.dq)
        for total, runs in zip(sums[1:].unbind(), dkv, strict=True):
            add_overlapping(scratch.added.zero_()[None], runs, self.piece)
            total.add_(torch.index_select(scratch.added, 0, self.place + self.piece.start, out=scratch.dk))


def sort_by_bucket(ids: Tensor) -> Tensor:
    """Sort tokens by (bucket, position): ids (..., T) -> bucket × T + position, ascending, int32 (..., T)."""
    T = ids.shape[-1]
    keys = ids * T + torch.arange(T, device=ids.device)
    return keys.to(torch.int32).sort(dim=-1).values


def _orders(tokens: Tensor, buckets: int, earlier: int, like: Tensor) -> Callable[[int], _Order]:
    """Return what yields the order of a round, for the sorted tokens of a group of heads, (G, rounds, T)."""
    G, rounds, T = tokens.shape
    piece = _blocks(G * T, earlier)
    band = band_mask(piece, earlier + 1, like)
    band.diagonal(earlier).fill_(-math.log(rounds))
    head = torch.arange(G, device=tokens.device)[:, None, None]
    padding = (earlier, piece.blocks * piece.queries - G * T)
    order = (tokens % T + head * T).transpose(0, 1).flatten(1)
    # No bucket is -1: nothing sees a place outside the tokens, except such places each other.
    label = pad((tokens // T + head * buckets).transpose(0, 1).flatten(1), padding, value=-1)
    place = torch.empty_like(order, dtype=torch.long)
    place.scatter_(1, order.long(), torch.arange(G * T, device=tokens.device).expand(rounds, -1))
    sources = pad(order, padding).unbind()

    def order_of(r: int) -> _Order:
        labels = label[r][None, :, None]
        same = queries_of(labels, piece) == keys_of(labels, piece).mT
        return _Order(source=sources[r], place=place[r], mask=torch.where(same, band, -math.inf), piece=piece)

    return order_of


def _blocks(tokens: int, earlier: int) -> Piece:
    b = block_tokens(earlier + 1)
    return Piece(start=earlier, blocks=-(-tokens // b), queries=b, key_start=0, keys=b + earlier)


def _merge(merged: Tensor, merged_lse: Tensor, out: Tensor, lse: Tensor) -> Tensor:
    """Merge a round's out (S, D) and lse (S) into ``merged`` in place; return the new log-sum-exp."""
    both = torch.logaddexp(merged_lse, lse)
    merged.mul_((merged_lse - both).exp_().unsqueeze(-1))
    merged.addcmul_(out.to(merged.dtype), (lse - both).exp_().unsqueeze(-1))
    return both


def _inverse_length(q: Tensor) -> Tensor:
    return (q.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt_()


def _pull_back_keys(q: Tensor, dk: Tensor) -> Tensor:
    """Return the gradient of q from that of its keys: (dk − k (k·dk)) / length."""
    inverse = _inverse_length(q)
    k = q * inverse
    return (dk - k * (k * dk).sum(-1, keepdim=True)).mul_(inverse)


def _joined(x: Tensor) -> Tensor:
    """Join heads into one contiguous sequence: x (G, T, D) -> (G · T, D)."""
    return x.reshape(-1, x.shape[-1]).contiguous()


def joined_pairs(batch: int, heads: int, tokens: int, earlier: int) -> int:
    """Return the query-key pairs of a batch, all heads, that the blocks of a hash round multiply.

    On a CPU, unless :func:`~wattention.mechanisms.target.traced_for` says where: the groups of heads differ.
    """
    here = target_of() == "cpu"
    rows, in_a_row = (batch, heads) if here else (1, batch * heads)
    group = heads_at_a_time(in_a_row, tokens, on_cpu=here)
    piece = _blocks(group * tokens, earlier)
    return rows * in_a_row // group * piece.blocks * piece.queries * piece.keys
