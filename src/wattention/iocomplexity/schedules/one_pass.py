"""One-pass backward, five products: K, V, dK and dV of a block stay, queries stream, dQ is read and written each time.

    c (2 d_k + 2 d_v + 2) + d_k + d_v + 1 <= M,
    words = 2 n d (D) + (d_k + d_v + 2) query touches(c) + d_k (2 query touches(c) - n) + ..., about 16 n^2 d^2 / M
Source: Dao 2023, FlashAttention-2, algorithm 2.
"""

from __future__ import annotations

from functools import partial

from wattention.iocomplexity.parts.one_pass import count, least_words, plan_blocks, run_blocks
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The largest useful block of keys."""
    tiles = plan_blocks(problem, fast_words)
    if tiles is None:
        raise FastMemoryTooSmallError("one_pass", got=fast_words, least_words=least_words(problem))
    return tiles


SCHEDULE = Schedule(
    name="one_pass",
    title="One pass, five products",
    direction="backward",
    source="Dao 2023, FlashAttention-2, algorithm 2",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=partial(count, sums="read-write"),
    run=partial(run_blocks, sums="read-write"),
)
