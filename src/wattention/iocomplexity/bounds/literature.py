"""The literature's asymptotic forms, shown as shapes: they carry no constant, so no number here is certified.

A shape says how traffic scales; dividing a schedule by it, or comparing two shapes of different papers, means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wattention.iocomplexity.bounds.base import Direction
from wattention.iocomplexity.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An order of growth from a paper; ``growth`` is its argument without the hidden constant."""

    name: str
    form: str
    direction: tuple[Direction, ...]
    algorithms: str
    source: str
    growth: Callable[[Problem, int], float]


def _tokens(p: Problem) -> float:
    return math.sqrt(p.rows * p.key_tokens)


def _saha_ye(p: Problem, fast_words: int) -> float:
    n, d = _tokens(p), math.sqrt(p.key_dim * p.value_dim)
    return p.copies * min(n**2 * d**2 / fast_words, n**2 * d / math.sqrt(fast_words))


def _fine_grained(p: Problem, fast_words: int) -> float:
    n, d = _tokens(p), math.sqrt(p.key_dim * p.value_dim)
    large = (n**2 * d**2 + n * d**3) / fast_words
    small = (n**2 * d + n * d**2) / math.sqrt(fast_words)
    return p.copies * min(large, small)


def _sparse(p: Problem, fast_words: int) -> float:
    z_input, z_scores = float(p.rows * p.key_dim), float(p.pairs)
    large = z_input**2 / fast_words
    small = z_input * math.sqrt(z_scores) / math.sqrt(fast_words)
    return p.copies * min(large, small)


SHAPES: tuple[Shape, ...] = (
    Shape(
        name="Saha-Ye",
        form="Theta(min{n^2 d^2 / M, n^2 d / sqrt(M)})",
        direction=("forward",),
        algorithms="standard (semiring) matrix products; the large-cache part also for fast products",
        source="Saha and Ye, ICML 2024 (arXiv 2402.07443)",
        growth=_saha_ye,
    ),
    Shape(
        name="fine-grained backward",
        form="Theta(min{(n^2 d^2 + n d^3) / M, (n^2 d + n d^2) / sqrt(M)})",
        direction=("backward",),
        algorithms="standard matrix products, input-side form of the gradient",
        source="Li et al. (arXiv 2410.09397), theorems 1.1, 4.1 to 4.4",
        growth=_fine_grained,
    ),
    Shape(
        name="sparse",
        form="Omega(min{Z_in^2 / M, Z_in sqrt(Z_QK) / sqrt(M)})",
        direction=("forward", "backward"),
        algorithms="sparse semiring products; Z_in, Z_QK: non-zeros of inputs and scores; no matching upper bound",
        source="Li et al. (arXiv 2410.09397), sparse form (abstract checked); recalled, not checked word by word",
        growth=_sparse,
    ),
)
