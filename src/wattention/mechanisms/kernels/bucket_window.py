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
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wattention.mechanisms.kernels.hashing import bucket_ids
from wattention.mechanisms.kernels.precision import accumulator, without_autocast
from wattention.mechanisms.kernels.window import (
    GROUP_TOKENS,
    Band,
    BlockKernel,
    band_backward,
    band_forward,
    block_kernel,
    multiplied_pairs,
)

LENGTH_EPS = 1e-12
"""ε of a key's length: a zero query has a zero key."""


def keys_from_queries(q: Tensor) -> Tensor:
    """Return q (..., D) divided by its length, in the dtype of q."""
    wide = q.to(accumulator(q.dtype))
    return (wide * _inverse_length(wide)).to(q.dtype)


def bucket_window_attention(
    q: Tensor, v: Tensor, rotations: Tensor, *, earlier: int, kernel: BlockKernel | None = None
) -> Tensor:
    """Attend within buckets.

    Args:
        q, v: (B, H, T, D), any strides; q also makes the keys.
        rotations: (rounds, D, N / 2) of the hash.
        earlier: c, the earlier tokens of its bucket that a query sees beside itself.
        kernel: ``flash`` or ``matmul``; None is the device's own.

    Returns:
        (B, H, T, D) in the dtype of q, a view of a contiguous (B, T, H, D) tensor.
    """
    kernel = block_kernel(q.device) if kernel is None else kernel
    out: Tensor = _BucketWindow.apply(q, v, rotations, earlier, kernel)  # type: ignore[no-untyped-call]
    return out


class _BucketWindow(torch.autograd.Function):
    @staticmethod
    @without_autocast
    def forward(ctx: Any, q: Tensor, v: Tensor, rotations: Tensor, earlier: int, kernel: BlockKernel) -> Tensor:
        B, H, T, D = q.shape
        rounds, buckets = rotations.shape[0], 2 * rotations.shape[2]
        assert buckets * H * T < 2**31, "tokens sorted by bucket are int32"
        wide = accumulator(q.dtype)
        out = torch.empty(B, T, H, D, dtype=q.dtype, device=q.device).transpose(1, 2)
        lse = torch.empty(B, H, T, dtype=wide, device=q.device)
        tokens = torch.empty(B, H, rounds, T, dtype=torch.int32, device=q.device)
        for part in _groups_of_heads(q):
            tokens[part] = sort_by_bucket(bucket_ids(q[part], rotations))
            qs, vs = _joined(q[part]), _joined(v[part])
            inputs = (qs, keys_from_queries(qs), vs)
            merged, merged_lse = torch.zeros_like(qs, dtype=wide), torch.full_like(qs[:, 0], -math.inf, dtype=wide)
            for order, inverse, band in _rounds(tokens[part], buckets, earlier):
                out_r, lse_r = torch.empty_like(qs), torch.empty_like(merged_lse)
                band_forward(*(x.index_select(0, order)[None] for x in inputs), out_r[None], lse_r[None], band, kernel)
                merged_lse = _merge(merged, merged_lse, out_r.index_select(0, inverse), lse_r[inverse])
            out[part], lse[part] = merged.view(-1, T, D), merged_lse.view(-1, T)
        ctx.save_for_backward(q, v, out, lse, tokens)
        ctx.buckets, ctx.earlier, ctx.kernel = buckets, earlier, kernel
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    @without_autocast
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, v, out, lse, tokens = ctx.saved_tensors
        T, D = q.shape[2:]
        dq, dv = torch.empty_like(q), torch.empty_like(v)
        for part in _groups_of_heads(q):
            qs = _joined(q[part])
            inputs = (_joined(g[part]), qs, keys_from_queries(qs), _joined(v[part]), _joined(out[part]))
            lses = lse[part].reshape(-1)
            totals = torch.zeros(3, *qs.shape, dtype=lse.dtype, device=q.device)
            for order, inverse, band in _rounds(tokens[part], ctx.buckets, ctx.earlier):
                parts = torch.zeros_like(totals)
                sorted_inputs = (x.index_select(0, order)[None] for x in inputs)
                band_backward(*sorted_inputs, lses[order][None], *parts[:, None], band, ctx.kernel)
                for total, grad in zip(totals, parts, strict=True):
                    total += grad.index_select(0, inverse)
            dqs, dks, dvs = totals
            dqs += _pull_back_keys(qs.to(lse.dtype), dks)
            dq[part], dv[part] = dqs.view(-1, T, D), dvs.view(-1, T, D)
        return dq, dv, None, None, None


def sort_by_bucket(ids: Tensor) -> Tensor:
    """Sort tokens by (bucket, position): ids (..., T) -> bucket × T + position, ascending, int32 (..., T)."""
    T = ids.shape[-1]
    keys = ids * T + torch.arange(T, device=ids.device)
    return keys.to(torch.int32).sort(dim=-1).values


def _rounds(tokens: Tensor, buckets: int, earlier: int) -> Iterator[tuple[Tensor, Tensor, Band]]:
    """Yield for each round the order of the joined tokens (G · T), its inverse, and the band; tokens (G, rounds, T)."""
    G, rounds, T = tokens.shape
    head = torch.arange(G, device=tokens.device)[:, None]
    position = torch.arange(G * T, device=tokens.device)
    for r in range(rounds):
        order = (tokens[:, r] % T + head * T).flatten()
        labels = (tokens[:, r] // T + head * buckets).view(1, G * T)
        inverse = torch.empty_like(order).scatter_(0, order, position)
        yield order, inverse, Band(window=earlier + 1, labels=labels, self_bias=-math.log(rounds))


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


def _groups_of_heads(q: Tensor) -> Iterator[tuple[int, slice]]:
    """Yield the indices (batch row, heads) of the parts to work on at a time."""
    B, H, T, _ = q.shape
    group = _heads_at_a_time(T) if q.device.type == "cpu" else H
    for b in range(B):
        for head in range(0, H, group):
            yield b, slice(head, head + group)


def _heads_at_a_time(tokens: int) -> int:
    return max(1, GROUP_TOKENS // tokens)


def joined_pairs(heads: int, tokens: int, earlier: int) -> int:
    """Return the query-key pairs that the blocks of one hash round multiply on a CPU, for one sequence and all heads."""
    whole, rest = divmod(heads, _heads_at_a_time(tokens))
    sizes = [_heads_at_a_time(tokens)] * whole + [rest] * (rest > 0)
    return sum(multiplied_pairs(size * tokens, earlier + 1, labelled=True) for size in sizes)
