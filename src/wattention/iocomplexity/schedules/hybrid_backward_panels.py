"""Hybrid backward in panels of g, about 8 sqrt(M), keys: g n words of scratch for 2 n d (n / g - 1) more words moved.

Source: this project; see :mod:`wattention.iocomplexity.parts.hybrid`.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import hybrid
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The cuts of the full-scratch form; a panel is a whole number of key blocks."""
    cuts = hybrid.plan_cuts(problem, fast_words)
    if cuts is None:
        raise FastMemoryTooSmallError("hybrid_backward_panels", got=fast_words, least_words=hybrid.least_words(problem))
    blocks = -(-8 * isqrt(fast_words) // cuts.keys.keys)
    return replace(cuts, panel_keys=min(problem.key_tokens, blocks * cuts.keys.keys)).as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return hybrid.count(problem, hybrid.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    hybrid.run_panels(machine, problem, hybrid.cuts_of(tiles))


SCHEDULE = Schedule(
    name="hybrid_backward_panels",
    title="Hybrid in key panels",
    direction="backward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
)
