"""Ceilings on the work of a segment that were proved by branch and bound, and how they serve every M and d.

Each number here was proved by the search of :mod:`._certificates`; the tests prove some again. Three facts carry a
ceiling to other sizes (docs/theory/tightness.md), since a segment may always be shrunk:

* exclusive backward, F(K) for d = 1: F(K) / K^(3/2) never falls and F(K) / K^2 never rises with K, so
  F(K) <= F(K0) (K / K0)^(3/2) below K0 and F(K) <= F(K0) (K / K0)^2 above; F(K, d) = d^3 F(K / d^2).
* spanning, f(x) = F / (d M) at M = 1: f never rises with x = d / sqrt(M), and x^2 f(x) never falls.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

_MARGIN = 1.0 + 1e-6
"""Above the rounding error of the certificates."""


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """No segment at this x does more than ``ceiling`` d M weighted multiply-adds for charges of ``length`` M."""

    x: float
    length: float
    last: float
    """Weight of the uses of a pair word that is never loaded; its making has the rest of the weight."""
    ceiling: float
    theta: float = 1.0
    """An accumulator is charged 1 + theta when it arrives and 1 - theta when it leaves."""


EXCLUSIVE_BACKWARD: tuple[tuple[float, float], ...] = (
    (3.0, 1.03572),
    (5.0, 2.27382),
    (6.0, 2.99947),
    (8.0, 4.72949),
    (10.0, 6.86515),
    (14.0, 12.86397),
    (16.0, 16.48),
    (20.0, 25.875),
    (30.0, 57.9375),
    (60.0, 229.5),
)
"""(K, F(K)) of D* for d = 1."""

_PROVED_AT = [at for at, _ in EXCLUSIVE_BACKWARD]
_FROM_BELOW: list[float] = list(accumulate((value / at**2 for at, value in EXCLUSIVE_BACKWARD), min, initial=math.inf))
"""The least F(K0) / K0^2 of the first k entries, for k = 0, 1, 2 and so on."""
_FROM_ABOVE: list[float] = [
    min((value / at**1.5 for at, value in EXCLUSIVE_BACKWARD[k:]), default=math.inf)
    for k in range(len(EXCLUSIVE_BACKWARD) + 1)
]
"""The least F(K0) / K0^(3/2) of the others."""

SPANNING_FORWARD: tuple[Ceiling, ...] = (
    Ceiling(x=0.84, length=1.5, last=1.55, theta=0.7, ceiling=1.25001),
    Ceiling(x=1.0, length=1.9, last=1.47, theta=0.62, ceiling=1.16565),
    Ceiling(x=1.19, length=2.2, last=1.46, theta=0.62, ceiling=1.1579),
    Ceiling(x=1.41, length=2.5, last=1.43, theta=0.62, ceiling=1.0352),
    Ceiling(x=1.68, length=2.5, last=1.42, theta=0.65, ceiling=0.89286),
    Ceiling(x=2.0, length=2.7, last=1.47, theta=0.62, ceiling=0.79412),
    Ceiling(x=2.38, length=2.7, last=1.42, theta=0.65, ceiling=0.66667),
)
"""A*."""

SPANNING_BACKWARD: tuple[Ceiling, ...] = (
    Ceiling(x=0.707, length=1.8, last=1.3, ceiling=1.7561),
    Ceiling(x=0.866, length=2.2, last=1.3, ceiling=1.57143),
    Ceiling(x=1.0, length=2.5, last=1.32, ceiling=1.51516),
    Ceiling(x=1.18, length=2.45, last=1.32, ceiling=1.22501),
    Ceiling(x=1.41, length=2.45, last=1.32, ceiling=1.0),
    Ceiling(x=1.68, length=2.45, last=1.32, ceiling=0.83761),
    Ceiling(x=2.0, length=2.45, last=1.32, ceiling=0.70001),
    Ceiling(x=2.18, length=2.45, last=1.32, ceiling=0.64474),
    Ceiling(x=2.38, length=2.45, last=1.32, ceiling=0.58683),
    Ceiling(x=2.83, length=2.45, last=1.34, ceiling=0.49001),
    Ceiling(x=3.36, length=2.45, last=1.32, ceiling=0.42609),
    Ceiling(x=4.0, length=2.45, last=1.35, ceiling=0.35637),
    Ceiling(x=4.76, length=2.45, last=1.35, ceiling=0.31112),
    Ceiling(x=5.2, length=2.45, last=1.35, ceiling=0.29167),
    Ceiling(x=5.66, length=2.45, last=1.35, ceiling=0.27223),
    Ceiling(x=6.17, length=2.45, last=1.36, ceiling=0.25389),
    Ceiling(x=6.73, length=2.45, last=1.36, ceiling=0.23787),
    Ceiling(x=7.34, length=2.45, last=1.36, ceiling=0.21876),
    Ceiling(x=8.0, length=2.45, last=1.36, ceiling=0.20207),
)
"""E*."""


def exclusive_backward(head_dim: int) -> Callable[[float], float]:
    """F(K) of D* for a head dimension, from the nearest proved ceilings."""
    square, unit = float(head_dim) ** 2, _MARGIN * float(head_dim) ** 3

    def most(words: float) -> float:
        scaled = words / square
        below = bisect_left(_PROVED_AT, scaled)
        return unit * min(_FROM_BELOW[below] * scaled * scaled, _FROM_ABOVE[below] * scaled * math.sqrt(scaled))

    return most


def spanning_words(
    ceilings: tuple[Ceiling, ...], *, weight: int, pairs: int, head_dim: int, accumulators: int, fast_words: int
) -> float:
    """The best bound that a table of ceilings gives, never below 0.

    Args:
        ceilings: the table.
        weight: weighted multiply-adds of a pair, per feature.
        pairs: E of one copy.
        head_dim: d.
        accumulators: words of the outputs; each is charged once more than it moves.
        fast_words: M.
    """
    best = 0.0
    for c in ceilings:
        at = (head_dim / c.x) ** 2
        charge_free = (2.0 * weight * pairs / (c.ceiling * c.length)) ** 0.5
        # a run with M words is a run with more: the bound of the larger memory may be the better one
        memory = max(float(fast_words), min(at, charge_free))
        ceiling = _MARGIN * c.ceiling * max(1.0, memory / at)
        segments = weight * pairs / (ceiling * memory) - 1.0
        # a segment ends before the charge that would exceed its length, and no charge is above 2
        best = max(best, (c.length * memory - 2.0) * segments - accumulators)
    return best
