"""Hybrid backward with scratch for all pairs: the pass that makes dK and dV stores dS, and dQ = dS K is one product.

    about 9 n^2 d^2 / M + 2 n^2 for M > d^2 / 2: fewest words of all for d^2 < M < 2.5 d^2.
Source: this project; see :mod:`wattention.iocomplexity.parts.hybrid`.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import hybrid
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The best cut of each phase."""
    cuts = hybrid.plan_cuts(problem, fast_words)
    if cuts is None:
        raise FastMemoryTooSmallError("hybrid_backward", got=fast_words, least_words=hybrid.least_words(problem))
    return cuts.as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return hybrid.count(problem, hybrid.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    hybrid.run_panels(machine, problem, hybrid.cuts_of(tiles))


SCHEDULE = Schedule(
    name="hybrid_backward",
    title="Hybrid (stores dS)",
    direction="backward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
)
