"""Softmax attention over a band of keys: query i sees keys i − W + 1 to i, optionally only those with its own label.

Idea: the first W queries are plain causal attention; the rest are cut into blocks of b queries, and each block needs
one run of b + W − 1 keys. The blocks are overlapping views of q, k and v, so nothing is copied, and each is a small
dense attention that torch's fused kernels are good at. The gradients of the overlapping keys are added afterwards:

    out_i = Σ_j p_ij v_j,  p_ij = exp(s q_i·k_j − L_i),  L_i = log Σ_j exp(s q_i·k_j)          i − W < j ≤ i
    dv_j = Σ_i p_ij g_i,  dS_ij = s p_ij (g_i·v_j − g_i·out_i),  dq_i = Σ_j dS_ij k_j,  dk_j = Σ_i dS_ij q_i

Only q, k, v, out and L are kept for the backward, which forms p again (Dao 2023, arXiv 2307.08691, algorithms 1, 2).
out and L may come from a larger set of keys than the band: then p are the weights within that set, which is how
several hash rounds share one softmax.

Cost: time T (W + b) D and memory T D, forward and backward; nothing of size T × T.

Two kernels do the blocks. ``flash``: torch's FlashAttention-2 operator for CPUs and its backward. ``matmul``: batched
matrix products in float32, on any device. Which one runs is a matter of the device alone, see :func:`block_kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wattention.mechanisms.costs import tiled_causal_pairs
from wattention.mechanisms.kernels.precision import accumulator, without_autocast
from wattention.mechanisms.kernels.rounds import groups_of_heads, in_one_row
from wattention.mechanisms.target import target_of

BlockKernel = Literal["flash", "matmul"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Blocks of queries of equal size that follow each other, and the first block's keys."""

    start: int
    blocks: int
    queries: int
    key_start: int
    keys: int


def block_tokens(window: int) -> int:
    """Return the queries of one block, b: a quarter of the window, within the sizes that the kernels do well."""
    return min(max(window // 4, 32), 128)


def pieces(tokens: int, window: int) -> tuple[Piece, ...]:
    """Cut T queries into the first W, whole blocks, and what is left over."""
    first, b = min(tokens, window), block_tokens(window)
    whole, rest = divmod(tokens - first, b)
    cut = [Piece(start=0, blocks=1, queries=first, key_start=0, keys=first)]
    if whole:
        cut.append(Piece(start=first, blocks=whole, queries=b, key_start=first - window + 1, keys=b + window - 1))
    if rest:
        start = first + whole * b
        cut.append(Piece(start=start, blocks=1, queries=rest, key_start=start - window + 1, keys=rest + window - 1))
    return tuple(cut)


def multiplied_pairs(tokens: int, window: int) -> int:
    """Return the query-key pairs of one head that are multiplied, those outside the band included.

    By the CPU's kernel, unless :func:`~wattention.mechanisms.target.traced_for` names a device with the other one.
    """
    first, *others = pieces(tokens, window)
    causal = tiled_causal_pairs(first.queries) if target_of() == "cpu" else first.queries * first.keys
    return causal + sum(p.blocks * p.queries * p.keys for p in others)


def band_pairs(tokens: int, window: int) -> int:
    """Return the query-key pairs of one head inside the band."""
    first = min(tokens, window)
    return first * (first + 1) // 2 + (tokens - first) * window


def block_kernel(device: torch.device) -> BlockKernel:
    """Return the kernel that does the blocks on this device."""
    return "flash" if target_of(device) == "cpu" else "matmul"


def window_attention(q: Tensor, k: Tensor, v: Tensor, *, window: int, kernel: BlockKernel | None = None) -> Tensor:
    """Attend to the W latest keys.

    Args:
        q, k, v: (B, H, T, D), any strides.
        window: W, the query's own key included.
        kernel: ``flash`` or ``matmul``; None is :func:`block_kernel`.

    Returns:
        (B, H, T, D) in the dtype of q, on a CPU a view of a contiguous (B, T, H, D) tensor.
    """
    kernel = block_kernel(q.device) if kernel is None else kernel
    out: Tensor = _Window.apply(*map(in_one_row, (q, k, v)), window, kernel)  # type: ignore[no-untyped-call]
    return out.view(q.shape)


class Saved(NamedTuple):
    """What the backward pass of attention needs: q, k, v, out (..., T, D) and the log-sum-exp (..., T)."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Tensor


class _Window(torch.autograd.Function):
    @staticmethod
    @without_autocast
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int, kernel: BlockKernel) -> Tensor:
        B, H, T, D = q.shape
        q, k, v = (rows_contiguous(x) for x in (q, k, v))
        out = torch.empty(B, T, H, D, dtype=q.dtype, device=q.device).transpose(1, 2)
        lse = torch.empty(B, H, T, dtype=accumulator(q.dtype), device=q.device)

        def attend(part: tuple[int, slice], piece: Piece, mask: Tensor | None) -> None:
            block_out, block_lse = block_forward(
                queries_of(q[part], piece), keys_of(k[part], piece), keys_of(v[part], piece), mask, kernel
            )
            queries_of(out[part], piece).copy_(block_out)
            queries_of(lse[part].unsqueeze(-1), piece).copy_(block_lse.unsqueeze(-1))

        for part, piece, mask in _parts(q, window):
            attend(part, piece, mask)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.window, ctx.kernel = window, kernel
        return out

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        g = rows_contiguous(g)
        dq = torch.empty_like(q)
        dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (k, v))

        def pull_back(part: tuple[int, slice], piece: Piece, mask: Tensor | None) -> None:
            saved = Saved(
                q=queries_of(q[part], piece),
                k=keys_of(k[part], piece),
                v=keys_of(v[part], piece),
                out=queries_of(out[part], piece),
                lse=queries_of(lse[part].unsqueeze(-1), piece).squeeze(-1),
            )
            block_dq, block_dk, block_dv = block_backward(queries_of(g[part], piece), saved, mask, ctx.kernel)
            queries_of(dq[part], piece).copy_(block_dq)
            add_overlapping(dk[part], block_dk, piece)
            add_overlapping(dv[part], block_dv, piece)

        for part, piece, mask in _parts(q, ctx.window):
            pull_back(part, piece, mask)
        return dq, dk.to(k.dtype), dv.to(v.dtype), None, None


def band_mask(piece: Piece, window: int, like: Tensor) -> Tensor:
    """Return what is added to the scores of every block of a piece, 0 in the band and -inf outside: (b, keys)."""
    query = torch.arange(piece.start, piece.start + piece.queries, device=like.device)[:, None]
    key = torch.arange(piece.key_start, piece.key_start + piece.keys, device=like.device)
    mask = torch.full((piece.queries, piece.keys), -math.inf, dtype=like.dtype, device=like.device)
    return mask.masked_fill_((key <= query) & (key > query - window), 0.0)


def _parts(q: Tensor, window: int) -> Iterator[tuple[tuple[int, slice], Piece, Tensor | None]]:
    """Yield the index (batch row, heads), the piece and the mask of the parts to work on; None: plain causality."""
    for piece in pieces(q.shape[2], window):
        mask = band_mask(piece, window, q)[None, None] if piece.start else None
        for part in groups_of_heads(q, piece.blocks * piece.queries):
            yield part, piece, mask


def queries_of(x: Tensor, piece: Piece) -> Tensor:
    """View the blocks of queries: x (H, T, D) -> (n, H, b, D)."""
    return _runs(x, piece.start, piece.blocks, piece.queries, piece.queries)


def keys_of(x: Tensor, piece: Piece) -> Tensor:
    """View the overlapping runs of keys: x (H, T, D) -> (n, H, keys, D)."""
    return _runs(x, piece.key_start, piece.blocks, piece.queries, piece.keys)


def _runs(x: Tensor, start: int, number: int, step: int, length: int) -> Tensor:
    heads, tokens, features = x.stride()
    size, stride = (number, x.shape[0], length, x.shape[2]), (step * tokens, heads, tokens, features)
    return x.as_strided(size, stride, x.storage_offset() + start * tokens)


def add_overlapping(total: Tensor, runs: Tensor, piece: Piece) -> None:
    """Add the gradients of overlapping runs of keys, (n, H, keys, D), where they belong in total (H, T, D)."""
    # Rows s to s + b of all runs do not overlap, so each shift is one addition of a strided view.
    for shift in range(0, piece.keys, piece.queries):
        rows = min(piece.queries, piece.keys - shift)
        place = _runs(total, piece.key_start + shift, piece.blocks, piece.queries, rows)
        place.add_(runs[:, :, shift : shift + rows])


def block_forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kernel: BlockKernel) -> tuple[Tensor, Tensor]:
    """Attend within blocks: q (n, H, b, D), k, v (n, H, keys, D) -> out (n, H, b, D), log-sum-exp (n, H, b).

    A mask has one row for all heads: (n or 1, 1, b, keys), and n heads have H = 1.
    """
    if kernel == "flash":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = flash(q, k, v, 0.0, mask is None, attn_mask=mask)
        return out, lse
    n, H = q.shape[:2]
    q, k, v = (_one_batch(x, accumulator(x.dtype)) for x in (q, k, v))
    scores = _scores(q, k, mask)
    lse = torch.logsumexp(scores, dim=-1)
    weights = scores.sub_(lse.unsqueeze(-1)).exp_()
    out = torch.bmm(weights, v)
    return out.view(n, H, *out.shape[1:]), lse.view(n, H, -1)


def block_backward(g: Tensor, saved: Saved, mask: Tensor | None, kernel: BlockKernel) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q (n, H, b, D), k and v (n, H, keys, D) of blocks; g (n, H, b, D).

    ``out`` and ``lse`` may cover more keys than the blocks have.
    """
    if kernel == "flash":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq, dk, dv = flash(g, *saved, 0.0, mask is None, attn_mask=mask)
        return dq, dk, dv
    n, H, _, D = g.shape
    wide = accumulator(saved.q.dtype)
    g, q, k, v, out = (_one_batch(x, wide) for x in (g, *saved[:4]))
    weights = _scores(q, k, mask).sub_(saved.lse.flatten(0, 1).unsqueeze(-1)).exp_()
    pull = torch.baddbmm((g * out).sum(-1, keepdim=True).neg_(), g, v.mT).mul_(weights)
    scale = 1 / math.sqrt(D)
    gradients = torch.bmm(pull, k).mul_(scale), torch.bmm(pull.mT, q).mul_(scale), torch.bmm(weights.mT, g)
    dq, dk, dv = (x.view(n, H, *x.shape[1:]) for x in gradients)
    return dq, dk, dv


def _one_batch(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Join blocks and heads, (n, H, r, c) -> (n · H, r, c): one batch of products, which takes one call each."""
    return x.to(dtype).flatten(0, 1)


def _scores(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Return q k / sqrt(D) + mask (n · H, b, keys) of q (n · H, b, D) and k (n · H, keys, D); None: plain causality."""
    if mask is None:
        b = q.shape[1]
        added = torch.full((1, b, b), -math.inf, dtype=q.dtype, device=q.device).triu_(1)
    else:
        assert mask.shape[0] == 1 or mask.shape[0] == q.shape[0], "a mask for every block wants one head"
        added = mask.to(q.dtype).flatten(0, 1)
    return torch.baddbmm(added, q, k.mT, alpha=1 / math.sqrt(q.shape[-1]))


def rows_contiguous(x: Tensor) -> Tensor:
    """Return x with its features next to each other, as the flash operator needs; a copy only where they are not."""
    return x if x.stride(-1) == 1 else x.contiguous()
