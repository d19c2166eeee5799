"""The first segment starts with an empty fast memory: it touches only the X words that it loads.

With N units of work, a run of k complete segments and a last one does at most F(X) + k F(M + X), hence it loads at
least

    max over integers X >= 1 of  X (N - F(X)) / F(M + X)

words: up to 3/4 M more than X (N / F - 1), which matters where M comes near n d.
"""

from __future__ import annotations

from collections.abc import Callable

_STEPS = 64


def most_words_from_empty(work: float, capacity: Callable[[float], float], fast_words: int) -> float:
    """The best bound over a range of X, never below 0; every X gives a true bound, so the search may be coarse.

    Args:
        work: N, multiply-adds of the whole run.
        capacity: F, increasing.
        fast_words: M.
    """

    def bound(x: int) -> float:
        return x * (work - capacity(x)) / capacity(fast_words + x)

    coarse = sorted({max(1, round(fast_words * 2.0 ** (k / 8 - 5))) for k in range(_STEPS)})
    best = max(coarse, key=bound)
    highest, step = bound(best), max(1, best // 12)
    while step:  # halving alone: F may have kinks, at which parabolas mislead
        words, better = max((bound(x), -x) for x in (max(1, best - step), best + step))
        if words > highest:
            highest, best = words, -better
        else:
            step //= 2
    return max(0.0, highest)
