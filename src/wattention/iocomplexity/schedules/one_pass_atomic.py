"""One-pass backward, five products, dQ grown by atomic adds: slow memory does the sum, so no word of dQ is ever read.

    words as in the one-pass backward, less the reads of dQ: about 12 n^2 d^2 / M
Write-only accumulation lies outside the two-level model of most bounds; compare it with bounds of its own class only.
Source: Dao 2023, FlashAttention-2, algorithm 2 and section 3.2 (atomic adds for dQ).
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
        raise FastMemoryTooSmallError("one_pass_atomic", got=fast_words, least_words=least_words(problem))
    return tiles


SCHEDULE = Schedule(
    name="one_pass_atomic",
    title="One pass, five products, atomic dQ",
    direction="backward",
    source="Dao 2023, FlashAttention-2, algorithm 2",
    facts=Facts(forms_scores_once=True, materialises=False, remote_adds=True),
    plan=plan,
    predict=partial(count, sums="remote"),
    run=partial(run_blocks, sums="remote"),
)
