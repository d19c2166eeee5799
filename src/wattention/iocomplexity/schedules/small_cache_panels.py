"""Small-cache forward, both phases panel by panel: the scratch is about sqrt(M) n words instead of n^2.

The words moved are those of the small-cache forward, up to the rounding of phase 2's blocks to the panel.
Source: this project; see :mod:`wattention.iocomplexity.parts.small_cache`.
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
    """The cuts of the full-scratch form, and the panel that suits both."""
    cuts = small_cache.plan_cuts(problem, fast_words)
    if cuts is None:
        raise FastMemoryTooSmallError(
            "small_cache_panels", got=fast_words, least_words=small_cache.least_words(problem)
        )
    return small_cache.panelled(problem, cuts).as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return small_cache.count(problem, small_cache.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    small_cache.run_panels(machine, problem, small_cache.cuts_of(tiles))


SCHEDULE = Schedule(
    name="small_cache_panels",
    title="Small-cache in row panels",
    direction="forward",
    source="idea: Saha and Ye 2024 (arXiv 2402.07443); tiles: this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
