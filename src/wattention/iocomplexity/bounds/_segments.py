"""The arithmetic that every segment argument shares: how much work fits between X loads, and which X is best.

Cut a run into segments of X loads. What a segment can touch is M + X words: those present at its start and those it
loads. If no segment can do more than F(M + X) of the N units of work, then at least N / F(M + X) - 1 segments are
complete, and the run loads at least

    max over integers X >= 1 of  X (N / F(M + X) - 1)

words. Every X gives a true bound, so the search below may miss the best X without ever printing a false number; F on
the other hand must never come out too small, so the maxima inside F are taken in closed form, not on a grid.

Source of the method: Hong and Kung 1981, Irony, Toledo and Tiskin 2004; of the functions F here: the proofs in
docs/theory.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from wattention.iocomplexity.bounds._highest import highest

Capacity = Callable[[float], float]
"""F(K): the most work a segment that touches K words can do."""

_ROUNDING = 1.0 + 1e-12
"""F is raised by this factor, far above its rounding error, so that rounding can only weaken a bound."""


def most_words(work: float, capacity: Capacity, fast_words: int, *, at_start: float | None = None) -> float:
    """The best bound max over integer X of X (work / F(at_start + X) - 1), never below 0.

    Args:
        work: N, units of work of the whole run (multiply-adds, weighted where the proof says so).
        capacity: F, increasing.
        fast_words: M, which sets the scale of the search.
        at_start: words a segment can touch without loading them; M unless the proof counts otherwise.
    """
    start = float(fast_words) if at_start is None else at_start

    def bound(x: int) -> float:
        return x * (work / capacity(start + x) - 1.0)

    if bound(1) <= 0.0:  # F grows, so no other segment is better
        return 0.0
    return max(0.0, bound(highest(bound, near=fast_words, reach=-(-fast_words // 2))))


def three_walls(words: float) -> float:
    """(K/3)^(3/2): the Loomis-Whitney maximum of sqrt(abc) over a + b + c = K."""
    return _ROUNDING * words / 3.0 * math.sqrt(words / 3.0)


def streamed_scores(head_dim: int) -> Capacity:
    """F of theorem A: sqrt(vo)(sqrt c + sqrt(ab)/d), maximised over a + b + v + o + c = K."""

    def most(words: float) -> float:
        square = float(head_dim) ** 2
        if words <= 3 * square:
            return three_walls(words)
        return _ROUNDING * (words + square) ** 2 / (16 * head_dim)

    return most


def carried_and_scratch(head_dim: int) -> Capacity:
    """F of theorems B' and D: the maximum over c of sqrt(c)(K - c)/2 + (K - c)^2 / (16 d)."""

    def most(words: float) -> float:
        root = _best_root(words, float(head_dim))
        carried = root * root
        return _ROUNDING * (root * (words - carried) / 2 + (words - carried) ** 2 / (16 * head_dim))

    return most


def _best_root(words: float, d: float) -> float:
    """The square root of the best c: the only root of s^3 - 6 d s^2 - K s + 2 d K in (0, sqrt K).

    With s = t + 2d it is the middle root of t^3 - (12 d^2 + K) t - 16 d^3, by the trigonometric formula, then one
    Newton step against cancellation.
    """
    p = 12 * d * d + words
    angle = math.acos(min(1.0, 24 * d**3 / p * math.sqrt(3 / p))) / 3
    s = 2 * math.sqrt(p / 3) * math.cos(angle - 2 * math.pi / 3) + 2 * d
    slope = 3 * s * s - 12 * d * s - words
    s -= (s**3 - 6 * d * s * s - words * s + 2 * d * words) / slope
    return min(max(s, 0.0), math.sqrt(words))
