"""Clauses on values: shape and dtype, the reference forward and backward, decoding, scratch memory, seeds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.lab.conformance.budget import Distance, distance, gradient_distances
from wattention.lab.conformance.subject import ClauseFailed, Evaluation, Subject

SEEDS = 3


def check_shape_dtype(subject: Subject) -> str:
    """The output has the shape and the dtype of the input, for one token, two tokens, the full context, any strides."""
    module = subject.module(subject.short)
    x = subject.tokens(subject.short)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    for case in (x, x[:, :1], x[:, :2], x[:1], strided):
        y = module(case)
        if y.shape != case.shape or y.dtype != case.dtype:
            raise ClauseFailed(f"got {_described(y)} for an input of {_described(case)}, wanted the same")
    return f"{_described(x)} in and out, also 1 and 2 tokens, 1 row and other strides"


def check_reference_forward(subject: Subject) -> str:
    """The output is as near the float64 reference as twice the rounding of the reference itself."""
    details = []
    for shape, seeds in _cases(subject):
        runs = [_three_ways(subject, shape, seed) for seed in seeds]
        found = distance([(fast.y, low.y, truth.y) for fast, low, truth in runs], subject.dtype)
        _demand(found, f"the output at T={shape.tokens}")
        details.append(f"T={shape.tokens}: {found}")
    return "; ".join(details)


def check_reference_gradients(subject: Subject) -> str:
    """Every gradient (x and each parameter) is as near the reference's as twice the rounding of its gradients."""
    details = []
    for shape, seeds in _cases(subject):
        runs = [_three_ways(subject, shape, seed) for seed in seeds]
        found = gradient_distances(
            [(fast.gradients, low.gradients, truth.gradients) for fast, low, truth in runs], subject.dtype
        )
        for name, one in found.items():
            _demand(one, f"the gradient of {name} at T={shape.tokens}")
        worst = max(found, key=lambda name: found[name].error)
        details.append(f"T={shape.tokens}: worst {worst}, {found[worst]}")
    return "; ".join(details)


def check_decoding(subject: Subject) -> str:
    """Prefill and decode, in any split, give the full pass: token by token, in chunks, and both mixed."""
    T = subject.short.tokens
    splits = {
        "one piece": [T],
        "prompt, then single tokens": [T - 5, 1, 1, 1, 1, 1],
        "chunks": [T // 3, T // 3, T - 2 * (T // 3)],
        "token by token": [1] * T,
        "mixed": [1, T // 2, 1, T - 2 - T // 2],
    }
    truth, low = subject.truth(subject.short), subject.truth(subject.short, dtype=subject.dtype)
    worst = Distance(error=0.0, budget=0.0)
    for name, split in splits.items():
        y = _decoded(subject, subject.short, [tokens for tokens in split if tokens])
        worst = max(worst, _decoding_distance(subject, y, low, truth, name), key=lambda found: found.error)
    longs = subject.long.tokens
    truth, low = subject.truth(subject.long), subject.truth(subject.long, dtype=subject.dtype)
    y = _decoded(subject, subject.long, [longs // 2 - 3, longs - longs // 2 - 1, 1, 1, 2])
    found = _decoding_distance(subject, y, low, truth, f"chunks at T={longs}")
    return f"{len(splits)} splits of T={T}: {worst}; chunks of T={longs}: {found}"


def check_poisoned_scratch(subject: Subject) -> str:
    """With every uninitialised tensor filled with NaN, output and gradients stay finite and right."""
    for shape in (subject.short, subject.long):
        with _poisoned_memory():
            fast = subject.fast(shape)
        for name, tensor in {"output": fast.y, **fast.gradients}.items():
            bad = int((~tensor.isfinite()).sum())
            if bad:
                raise ClauseFailed(
                    f"{bad} of {tensor.numel()} values of {name} are not finite at T={shape.tokens} when uninitialised "
                    "memory holds NaN: memory is read before it is written"
                )
        truth, low = subject.truth(shape), subject.truth(shape, dtype=subject.dtype)
        _demand(distance([(fast.y, low.y, truth.y)], subject.dtype), "the output on poisoned memory")
    return "output and gradients are right when uninitialised memory holds NaN"


def check_reproducible(subject: Subject) -> str:
    """The same seed gives the same bits: building twice, calling twice, forward and backward."""
    first, second = subject.fast(subject.short), subject.fast(subject.short)
    module, x = subject.module(subject.short), subject.tokens(subject.short)
    pairs = {"the output of two builds": (first.y, second.y), "the output of two calls": (module(x), module(x))}
    if subject.device.type == "cpu":  # CUDA kernels add gradients in the order that blocks finish
        pairs |= {f"the gradient of {n} of two builds": (g, second.gradients[n]) for n, g in first.gradients.items()}
    for name, (one, two) in pairs.items():
        if not torch.equal(one, two):
            differ = int((one != two).sum())
            raise ClauseFailed(f"{name} with one seed differs in {differ} of {one.numel()} values, wanted equal bits")
    return f"{len(pairs)} pairs of tensors are equal bit for bit"


def _cases(subject: Subject) -> Iterable[tuple[AttentionShape, list[int]]]:
    """Return the shapes to compare values at; few numbers are a small sample of rounding, so those get more seeds.

    Contexts of 1 and 5 tokens are left out where the settings do not fit them, e.g. a window of 64.
    """
    seeds = [subject.seed + i for i in range(SEEDS)]
    few = [shape for tokens in (1, 5) if _fits(subject, shape := replace(subject.short, tokens=tokens))]
    return [*((shape, seeds) for shape in (*few, subject.short)), (subject.long, seeds[:1])]


def _fits(subject: Subject, shape: AttentionShape) -> bool:
    try:
        subject.module(shape)
    except UserError:
        return False
    return True


def _three_ways(subject: Subject, shape: AttentionShape, seed: int) -> tuple[Evaluation, Evaluation, Evaluation]:
    return subject.fast(shape, seed), subject.truth(shape, seed, subject.dtype), subject.truth(shape, seed)


def _demand(found: Distance, what: str) -> None:
    if not found.within:
        raise ClauseFailed(f"{what} is off the reference: relative {found}")


def _decoded(subject: Subject, shape: AttentionShape, split: list[int]) -> Tensor:
    module, x = subject.module(shape).eval(), subject.tokens(shape)
    with torch.no_grad():
        cache = module.new_cache(shape.batch)
        parts = [module(part, cache) for part in torch.split(x, split, dim=1)]
    if cache.length != shape.tokens:
        raise ClauseFailed(f"the cache says it holds {cache.length} tokens, fed: {shape.tokens}")
    return torch.cat(parts, dim=1)


def _decoding_distance(subject: Subject, y: Tensor, low: Evaluation, truth: Evaluation, split: str) -> Distance:
    found = distance([(y, low.y, truth.y)], subject.dtype)
    _demand(found, f"decoding ({split})")
    return found


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Fill uninitialised memory with NaN while the context is open."""
    was = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some kernel has no deterministic form is not what is asked
            yield
    finally:
        torch.use_deterministic_algorithms(was[0], warn_only=was[1])
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def _described(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
