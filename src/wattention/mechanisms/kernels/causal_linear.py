"""Causal linear attention in chunks: y_i = φq_i·S_i / (φq_i·z_i + ε), S_i = Σ_{j≤i} φk_j v_jᵀ, z_i = Σ_{j≤i} φk_j.

Tokens are cut into chunks of c. Inside a chunk the pairs are a masked c × c product; everything before the chunk is
one state (S, z). All chunks are then independent matrix products, and only the states are summed in order:

    numerator_i   = Σ_{j≤i, same chunk} (φq_i·φk_j) v_j + φq_i S      (Katharopoulos et al. 2020, eqs. 8 to 11)
    denominator_i = Σ_{j≤i, same chunk} (φq_i·φk_j)     + φq_i z + ε

With g̃ = g / denominator and h = −(g·y) / denominator the gradients are the same two kinds of sum, the second one
running backwards from the last token (their eqs. 13 to 15, with the denominator's part added):

    dφq_i = Σ_{j≤i} (g̃_i·v_j + h_i) φk_j      dφk_j = Σ_{i≥j} (g̃_i·v_j + h_i) φq_i      dv_j = Σ_{i≥j} (φq_i·φk_j) g̃_i

Cost: time T (c + D) D, memory T D; nothing of size T × T. Only q, k, v, y and the denominator are kept for the
backward, which computes the states again. A few heads are worked on at a time, so that their chunks stay in cache.
All sums are float32 (float64 for float64 input), also when q, k, v come in half precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wattention.mechanisms.kernels.precision import accumulator, without_autocast
from wattention.mechanisms.kernels.rounds import alike, groups_of_heads, in_one_row, on_cpu

CHUNK_TOKENS = 64
"""Tokens of one chunk: near D, so that the pairs of a chunk cost as much as its state."""


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """A positive feature map φ, applied to each head's D features, and its vector-Jacobian product.

    Args:
        name: how a configuration names it.
        apply: x (..., D) -> φ(x) (..., D).
        pull_back: (x, φ(x), gradient of φ(x)) -> gradient of x; may overwrite φ(x).
    """

    name: str
    apply: Callable[[Tensor], Tensor]
    pull_back: Callable[[Tensor, Tensor, Tensor], Tensor]


def _elu_plus_one(x: Tensor) -> Tensor:
    # exp(min(x, 0)) + max(x, 0) is elu(x) + 1 without the cancellation of (exp(x) - 1) + 1, so φ > 0 down to x = -87
    return x.clamp(max=0).exp_().add_(x.clamp(min=0))


FEATURE_MAPS = {
    m.name: m
    for m in (
        FeatureMap(name="elu+1", apply=_elu_plus_one, pull_back=lambda x, phi, g: phi.clamp_(max=1).mul_(g)),
        FeatureMap(name="relu", apply=torch.relu, pull_back=lambda x, phi, g: g * (x > 0)),
        FeatureMap(
            name="softmax",
            apply=lambda x: torch.softmax(x, dim=-1),
            pull_back=lambda x, phi, g: phi * (g - (g * phi).sum(-1, keepdim=True)),
        ),
    )
}
"""``elu+1``: Katharopoulos et al. 2020, eq. 7. ``relu``: Kasai et al. 2021 without their learned affine map.
``softmax`` over the features: Shen et al. 2021 for queries, here for keys too (theirs are normalised over tokens)."""


def causal_linear_attention(q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap, eps: float) -> Tensor:
    """Attend linearly and causally.

    Args:
        q, k, v: (B, H, T, D), any strides.
        feature_map: φ.
        eps: added to the denominator, so that features that are all zero give zero and not NaN.

    Returns:
        (B, H, T, D) in the dtype of v, on a CPU a view of a contiguous (B, T, H, D) tensor.
    """
    y: Tensor = _CausalLinear.apply(*map(in_one_row, (q, k, v)), feature_map, eps)  # type: ignore[no-untyped-call]
    return y.view(v.shape)


def chunk_tokens(tokens: int) -> int:
    """Return the tokens of one chunk for sequences of T tokens."""
    return min(CHUNK_TOKENS, tokens)


class _CausalLinear(torch.autograd.Function):
    @staticmethod
    @without_autocast
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, feature_map: FeatureMap, eps: float) -> Tensor:
        B, H, T, D = q.shape
        y = torch.empty(B, T, H, D, dtype=v.dtype, device=v.device).transpose(1, 2)
        denominator = torch.empty(B, H, T, dtype=accumulator(v.dtype), device=v.device)

        def attend(part: tuple[int, slice]) -> None:
            qs, ks, vs = feature_map.apply(_wide(q[part])), feature_map.apply(_wide(k[part])), _wide(v[part])
            numerator, denominator[part] = causal_sums(qs, ks, vs)
            y[part] = numerator.div_(denominator[part].add_(eps).unsqueeze(-1))

        for part in groups_of_heads(q, T):
            attend(part)
        ctx.save_for_backward(q, k, v, y, denominator)
        ctx.feature_map = feature_map
        return y

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, y, denominator = ctx.saved_tensors
        T = q.shape[2]
        phi: FeatureMap = ctx.feature_map
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))

        def pull_back(part: tuple[int, slice]) -> None:
            wide_q, wide_k = _wide(q[part]), _wide(k[part])
            qs, ks = phi.apply(wide_q), phi.apply(wide_k)
            gs = _wide(g[part]) / denominator[part].unsqueeze(-1)
            hs = (gs * y[part]).sum(-1).neg_()
            dqs, dks, dv[part] = _backward(qs, ks, _wide(v[part]), gs, hs)
            dq[part], dk[part] = phi.pull_back(wide_q, qs, dqs), phi.pull_back(wide_k, ks, dks)

        for part in groups_of_heads(q, T):
            pull_back(part)
        return dq, dk, dv, None, None


def causal_sums(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over the tokens up to each: features q, k and values v (G, T, D) -> Σ (q·k) v (G, T, D), Σ q·k (G, T)."""
    T = q.shape[1]
    q, k, v = (_chunks(x) for x in (q, k, v))
    pairs = _lower(q @ k.mT)
    numerator, denominator = pairs @ v, pairs.sum(-1, keepdim=True)
    _add_products(numerator[:, 1:], q[:, 1:], _sums_up_to(k.mT @ v)[:, :-1])
    _add_products(denominator[:, 1:], q[:, 1:], _sums_up_to(k.sum(-2).unsqueeze(-1))[:, :-1])
    return numerator.flatten(1, 2)[:, :T], denominator.flatten(1)[:, :T]


def _backward(q: Tensor, k: Tensor, v: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of features q, k and values v, all (G, T, D); g (G, T, D) and h (G, T) as in the header."""
    T = q.shape[1]
    q, k, v, g, h = (_chunks(x) for x in (q, k, v, g, h.unsqueeze(-1)))
    pull = _lower((g @ v.mT).add_(h))
    dq, dk = pull @ k, pull.mT @ q
    pairs = _lower(torch.matmul(q, k.mT, out=pull))
    dv = pairs.mT @ g
    before, before_ones = _sums_up_to(k.mT @ v)[:, :-1], _sums_up_to(k.sum(-2).unsqueeze(-2))[:, :-1]
    _add_products(dq[:, 1:], g[:, 1:], before.mT)
    _add_products(dq[:, 1:], h[:, 1:], before_ones)
    after, after_ones = _sums_from(q.mT @ g)[:, 1:], _sums_from(h.mT @ q)[:, 1:]
    _add_products(dk[:, :-1], v[:, :-1], after.mT)
    dk[:, :-1] += after_ones
    _add_products(dv[:, :-1], k[:, :-1], after)
    return dq.flatten(1, 2)[:, :T], dk.flatten(1, 2)[:, :T], dv.flatten(1, 2)[:, :T]


def _sums_up_to(states: Tensor) -> Tensor:
    """Turn the states of chunks, (G, n, ...), into those of all chunks up to each, in place."""
    if not on_cpu(states):
        return states.cumsum_(1)
    # A loop of whole-state additions: torch's cumsum over a strided dimension is two to eight times slower on a CPU.
    each = states.unbind(1)
    for n in alike(range(1, len(each))):
        each[n].add_(each[n - 1])
    return states


def _sums_from(states: Tensor) -> Tensor:
    """Turn the states of chunks, (G, n, ...), into those of all chunks from each on; may overwrite them."""
    if not on_cpu(states):
        return states.flip(1).cumsum_(1).flip(1)
    each = states.unbind(1)
    for n in alike(range(len(each) - 2, -1, -1)):
        each[n].add_(each[n + 1])
    return states


def _add_products(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to ``total``, all (G, n, ., .), in place; without a temporary on a CPU, in few calls elsewhere."""
    if not on_cpu(total):
        total += a @ b
        return
    for head in alike(range(total.shape[0])):
        torch.baddbmm(total[head], a[head], b[head], out=total[head])


def _lower(pairs: Tensor) -> Tensor:
    """Zero the pairs (G, n, c, c) of a query with later keys, in place."""
    return pairs.tril_()


def _chunks(x: Tensor) -> Tensor:
    """Cut x (G, T, D) into chunks (G, n, c, D), the last one filled with zeros, which add nothing to any sum."""
    c = chunk_tokens(x.shape[1])
    missing = -x.shape[1] % c
    if missing:
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
    return x.reshape(x.shape[0], -1, c, x.shape[2])


def _wide(x: Tensor) -> Tensor:
    """Return x in the dtype that sums are made in."""
    return x.to(accumulator(x.dtype))
