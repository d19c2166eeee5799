"""Clauses on what depends on what: causality, mixing of tokens, heads, batch rows.

The main tool is the dependence matrix: copies of one input, one token changed in each, tell in two forward passes
which outputs read which tokens. Outputs are compared in the same row of two equal-shaped passes, because a matrix
product may round one row unlike another, but never the same row twice.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from wattention.lab.conformance.budget import FACTOR
from wattention.lab.conformance.subject import ClauseFailed, ClauseSkipped, Subject


def check_causality(subject: Subject) -> str:
    """Changing tokens from t on changes no output before t, and no gradient flows back from before t to t or later."""
    if not subject.mechanism.strictly_causal:
        raise ClauseSkipped(f"declares itself not strictly causal; {_leaks(subject):.0%} of earlier outputs move")
    allowed = _rounding(subject) if subject.mechanism.causal_rounding else 0.0
    T = subject.short.tokens
    moved = _moves(subject)
    later = torch.ones(T, T, dtype=torch.bool).triu(1).T  # [s, t]: token s comes after output t
    _demand_still(moved.masked_fill(~later, 0), allowed, "one later token")
    for shape, cuts in ((subject.short, (1, T // 2, T - 1)), (subject.long, _cuts(subject.long.tokens))):
        module, x, other = subject.module(shape), subject.tokens(shape), subject.tokens(shape, salt=1)
        with torch.no_grad():
            y = module(x)
        for cut in cuts:
            changed = torch.cat((x[:, :cut], other[:, cut:]), dim=1).requires_grad_()
            before = module(changed)[:, :cut]
            gap = (before.detach() - y[:, :cut]).abs().amax(dim=(0, 2))
            _demand_still(gap[None], allowed, f"all tokens from {cut} on")
            _demand_no_gradient(before, changed, cut)
    exactly = f"within {allowed:.1e}: {subject.mechanism.causal_rounding}" if allowed else "bit for bit"
    return (
        f"every token of T={T} and {len(cuts)} cuts of T={subject.long.tokens} leave earlier outputs alone, {exactly}"
    )


def check_tokens_mix(subject: Subject) -> str:
    """Outputs read earlier tokens: all of them for an exact mechanism, some of them for any other."""
    T = subject.short.tokens
    reads = _moves(subject) > 0
    if not bool(reads.diagonal().all()):
        lost = int((~reads.diagonal()).sum())
        raise ClauseFailed(f"{lost} of {T} outputs do not depend on their own token")
    earlier = torch.ones(T, T, dtype=torch.bool).triu(1)  # [s, t]: token s comes before output t
    pairs, seen = int(earlier.sum()), int((reads & earlier).sum())
    if subject.mechanism.exact and seen < pairs:
        s, t = (int(i) for i in (earlier & ~reads).nonzero()[0])
        raise ClauseFailed(
            f"output {t} does not depend on token {s}; {pairs - seen} of {pairs} earlier pairs are unread"
        )
    if not seen:
        raise ClauseFailed("no output depends on any earlier token: tokens do not mix")
    if not bool((reads & earlier).any(dim=0)[T // 2 :].any()):
        raise ClauseFailed("no output of the second half depends on any earlier token")
    return f"{seen} of {pairs} earlier query-key pairs are read"


def check_heads_separate(subject: Subject) -> str:
    """Each head has projected features of its own, and no feature feeds more heads than the record allows.

    Read from the gradients of each head's block of features, at the input of ``out``, with respect to the rows of
    every linear layer before it: exact zeros where a head does not read a row.
    """
    shape = subject.short
    module, x = subject.module(shape), subject.tokens(shape)
    joined = _input_of_out(module, x)
    if joined.shape[-1] % shape.heads:
        raise ClauseFailed(f"out reads {joined.shape[-1]} features, which {shape.heads} heads cannot share evenly")
    weights = {n: p.weight for n, p in module.named_modules() if isinstance(p, nn.Linear) and p is not module.out}
    if not weights:
        raise ClauseSkipped("no linear layer before out to read heads from")
    reads: list[Tensor] = []  # one (rows of all layers,) mask a head
    for block in joined.chunk(shape.heads, dim=-1):
        gradients = torch.autograd.grad(
            block.square().sum(), list(weights.values()), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        reads.append(torch.cat([(g != 0).any(dim=1) for g in gradients]))
    readers = torch.stack(reads)
    private = (readers & (readers.sum(0) == 1)).sum(1)
    allowed = subject.mechanism.heads_sharing(shape, subject.config)
    if int(private.min()) < 1:
        head = int(private.argmin())
        raise ClauseFailed(f"head {head} has no projected feature of its own: every feature it reads feeds other heads")
    if int(readers.sum(0).max()) > allowed:
        raise ClauseFailed(
            f"one projected feature feeds {int(readers.sum(0).max())} of {shape.heads} heads, wanted at most {allowed}"
        )
    return f"each of {shape.heads} heads has {int(private.min())} features of its own; at most {allowed} share one"


def check_batch_independent(subject: Subject) -> str:
    """A row of the batch does not see the others: outputs stay bit for bit, gradients are exactly zero."""
    shape = replace(subject.short, batch=max(2, subject.short.batch))
    module, x, other = subject.module(shape), subject.tokens(shape), subject.tokens(shape, salt=1)
    changed = torch.cat((x[:1], other[1:])).requires_grad_()
    y, z = module(x)[0], module(changed)[0]
    gap = float((y - z).detach().abs().max())
    allowed = _rounding(subject) if subject.mechanism.causal_rounding else 0.0
    if not gap <= allowed:
        raise ClauseFailed(f"changing the other rows moves row 0 by up to {gap:.2e}, wanted {allowed:.2e}")
    (gradient,) = torch.autograd.grad(z.square().sum(), changed)
    if bool((gradient[1:] != 0).any()):
        raise ClauseFailed("gradients flow from row 0 of the output to other rows of the input")
    return f"row 0 of {shape.batch} moves by {gap:.1e} when the others change; no gradient reaches them"


def _moves(subject: Subject) -> Tensor:
    """Return (T, T): how far output t moves when token s alone is changed, [s, t]."""
    T = subject.short.tokens
    shape = replace(subject.short, batch=T)
    module = subject.module(shape)
    same = subject.tokens(subject.short)[:1].expand(T, -1, -1)
    other = subject.tokens(subject.short, salt=1)[0]
    changed = same.clone()
    changed[torch.arange(T), torch.arange(T)] = other
    with torch.no_grad():
        moved: Tensor = module(changed) - module(same.contiguous())
    return moved.abs().amax(dim=2).double().cpu()


def _leaks(subject: Subject) -> float:
    """Return the share of (later token, earlier output) pairs in which the token moves the output."""
    moved = _moves(subject).T.triu(1) > 0
    T = subject.short.tokens
    return float(moved.sum()) / (T * (T - 1) / 2)


def _rounding(subject: Subject) -> float:
    """Return the largest rounding error of the reference in the dtype, times the budget's factor."""
    low, truth = subject.truth(subject.short, dtype=subject.dtype), subject.truth(subject.short)
    return FACTOR * float((low.y.double() - truth.y).abs().max())


def _cuts(tokens: int) -> tuple[int, ...]:
    return (1, tokens // 2 - 1, tokens - 1)


def _demand_still(gap: Tensor, allowed: float, what: str) -> None:
    """Demand that the moves of outputs (..., t) stay within what is allowed."""
    bad = ~(gap <= allowed)
    if bool(bad.any()):
        t = int(bad.nonzero()[0][-1])
        raise ClauseFailed(
            f"the future leaks: changing {what} moves {int(bad.any(0).sum())} earlier outputs, first output {t}, "
            f"by up to {float(gap.max()):.2e}, wanted {allowed:.1e}"
        )


def _demand_no_gradient(before: Tensor, x: Tensor, cut: int) -> None:
    if not before.requires_grad:
        raise ClauseFailed("the output carries no gradient to the input")
    (gradient,) = torch.autograd.grad(before.square().sum(), x)
    if bool((gradient[:, cut:] != 0).any()):
        raise ClauseFailed(f"the future leaks: gradients of outputs before {cut} reach tokens from {cut} on")


def _input_of_out(module: nn.Module, x: Tensor) -> Tensor:
    """Return the joined heads (B, T, H * D) that the layer ``out`` reads."""
    seen: list[Tensor] = []
    out = module.get_submodule("out")
    handle = out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        module(x)
    finally:
        handle.remove()
    if len(seen) != 1:
        raise ClauseFailed(f"the layer out ran {len(seen)} times in one pass, wanted once: it is the output projection")
    return seen[0]
