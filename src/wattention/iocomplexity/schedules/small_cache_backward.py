"""Small-cache backward with scratch for all rows: five products, each with its own best tile.

    about n^2 (10 d / sqrt(M) + 3) for d > 2 sqrt(M), 11 n^2 at M = d^2: fewest words of all for M < d^2.
Source: this project; see :mod:`wattention.iocomplexity.parts.small_cache_backward`.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import small_cache_backward
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The best cut of each phase."""
    cuts = small_cache_backward.plan_cuts(problem, fast_words)
    if cuts is None:
        raise FastMemoryTooSmallError(
            "small_cache_backward", got=fast_words, least_words=small_cache_backward.least_words(problem)
        )
    return cuts.as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return small_cache_backward.count(problem, small_cache_backward.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    small_cache_backward.run_panels(machine, problem, small_cache_backward.cuts_of(tiles))


SCHEDULE = Schedule(
    name="small_cache_backward",
    title="Small-cache backward",
    direction="backward",
    source="regime: Li et al. 2024 (arXiv 2410.09397, theorem 4.3); phases and tiles: this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
)
