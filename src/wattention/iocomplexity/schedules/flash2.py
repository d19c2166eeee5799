"""FlashAttention-2 order: a block of queries with its output stays, keys and values stream past word by word.

    words = n d_k + (d_k + d_v) key touches(r) + n d_v + n, about 4 n^2 d^2 / M + 2 n d
Source: Dao 2023, FlashAttention-2, algorithm 1; see :mod:`wattention.iocomplexity.parts.flash`.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import flash
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_shared_values,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The largest useful block of rows, and as many score columns as are left."""
    tiles = flash.plan_tiles(problem, fast_words)
    if tiles is None:
        raise FastMemoryTooSmallError("flash2", got=fast_words, least_words=flash.least_words(problem))
    return tiles


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return flash.count(problem, tiles)


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    flash.run_blocks(machine, problem, tiles)


SCHEDULE = Schedule(
    name="flash2",
    title="FlashAttention-2 order",
    direction="forward",
    source="Dao 2023, FlashAttention-2, algorithm 1",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
