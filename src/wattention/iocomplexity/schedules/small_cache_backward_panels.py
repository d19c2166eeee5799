"""Small-cache backward in panels of rho, about 8 sqrt(M), rows: rho n words of scratch, 4 n d (n / rho - 1) more moved.

Source: this project; see :mod:`wattention.iocomplexity.parts.small_cache_backward`.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import small_cache_backward
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The cuts of the full-scratch form; a panel is a whole number of blocks of the first product."""
    cuts = small_cache_backward.plan_cuts(problem, fast_words)
    if cuts is None:
        raise FastMemoryTooSmallError(
            "small_cache_backward_panels", got=fast_words, least_words=small_cache_backward.least_words(problem)
        )
    blocks = -(-8 * isqrt(fast_words) // cuts.p.rows)
    return replace(cuts, panel_rows=min(problem.rows, blocks * cuts.p.rows)).as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return small_cache_backward.count(problem, small_cache_backward.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    small_cache_backward.run_panels(machine, problem, small_cache_backward.cuts_of(tiles))


SCHEDULE = Schedule(
    name="small_cache_backward_panels",
    title="Small-cache backward in row panels",
    direction="backward",
    source="regime: Li et al. 2024 (arXiv 2410.09397, theorem 4.3); phases and tiles: this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
)
