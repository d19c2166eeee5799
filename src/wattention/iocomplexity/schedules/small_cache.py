"""Small-cache forward with scratch for all rows: two products, each with its own best tile, E = exp(S - m) between.

    d < sqrt(M): d^2/M + 1 + min over h of (h + d^2 / (h M)), d > 2 sqrt(M): 4 d / sqrt(M) + 1   (x n^2 words)
Slow memory beside inputs and outputs: E words and the tile maxima.
Source: the idea of Saha and Ye 2024 (arXiv 2402.07443); see :mod:`wattention.iocomplexity.parts.small_cache`.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import small_cache
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_shared_values,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """Each phase by itself gets the whole fast memory."""
    cuts = small_cache.plan_cuts(problem, fast_words)
    if cuts is None:
        raise FastMemoryTooSmallError("small_cache", got=fast_words, least_words=small_cache.least_words(problem))
    return cuts.as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return small_cache.count(problem, small_cache.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    small_cache.run_panels(machine, problem, small_cache.cuts_of(tiles))


SCHEDULE = Schedule(
    name="small_cache",
    title="Small-cache",
    direction="forward",
    source="idea: Saha and Ye 2024 (arXiv 2402.07443); tiles: this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
