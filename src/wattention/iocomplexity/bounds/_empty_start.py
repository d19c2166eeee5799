"""The first segment starts with an empty fast memory: it touches only the X words that it loads.

With N units of work, a run of k complete segments and a last one does at most F(X) + k F(M + X), hence it loads at
least

    max over integers X >= 1 of  X (N - F(X)) / F(M + X)

words: up to 3/4 M more than X (N / F - 1), which matters where M comes near n d.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

_SHARES = [2.0 ** (k / 8 - 5) for k in range(49)]
"""X / M from 1/32 to 2. No X above 2 M is the best: F grows as K^(3/2) or faster, so X / F(M + X) falls from there."""


def most_words_from_empty(work: float, capacity: Callable[[float], float], fast_words: int) -> float:
    """The best bound over a range of X, never below 0; every X gives a true bound, so the search may be coarse.

    Args:
        work: N, multiply-adds of the whole run.
        capacity: F, increasing.
        fast_words: M.
    """

    @cache
    def bound(x: int) -> float:
        return x * (work - capacity(x)) / capacity(fast_words + x)

    coarse = sorted({max(1, round(fast_words * share)) for share in _SHARES})
    best = max(coarse, key=bound)
    step = max(1, best // 12)
    while step:  # F may have kinks, so parabolas (_highest.py) may end beside the best X
        better = max((best, max(1, best - step), best + step), key=bound)
        step = step // 2 if better == best else step
        best = better
    return max(0.0, bound(best))
