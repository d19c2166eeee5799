"""Attention from the side of its inputs: O = softmax(A1 X A2^T) A3 Y, the form that bounds for gradients are about.

    T = A1 X, H = A3 Y      dense products
    O = softmax(T A2^T) H   FlashAttention-2 order or the small-cache phases, whichever moves fewer words
A2 lies in slow memory under the name K; T and H are scratch under the names Q and V. X = W_Q W_K^T and Y = W_V of
one head;
the paper's exponential is not scaled: give the problem ``scale=1``.
Source: Alman and Song 2024; Li et al. 2024 (arXiv 2410.09397), section 2.
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import flash, small_cache
from wattention.iocomplexity.parts.projections import (
    Projection,
    ProjectionTiles,
    least_for_projection,
    plan_projection,
    project,
    projection_part,
)
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """Each product by itself, and the better of the two orders of attention."""
    cuts, blocks = small_cache.plan_cuts(problem, fast_words), flash.plan_tiles(problem, fast_words)
    projections = {p.out: plan_projection(problem, p, fast_words) for p in _projections(problem)}
    orders: list[Tiles] = [tiles for tiles in (blocks, None if cuts is None else cuts.as_tiles()) if tiles is not None]
    if not orders or None in projections.values():
        attention = min(flash.least_words(problem), small_cache.least_words(problem))
        least = max(attention, least_for_projection(problem))
        raise FastMemoryTooSmallError("input_side", got=fast_words, least_words=least)
    best = dict(min(orders, key=partial(_words, problem)))
    for name, tiles in projections.items():
        assert tiles is not None
        best |= tiles.as_tiles(name)
    return best


def _projections(problem: Problem) -> tuple[Projection, Projection]:
    d = problem.key_dim
    return (
        Projection(out="Q", left="A1", right="X", rows=problem.rows, depth=d, columns=d),
        Projection(out="V", left="A3", right="Y", rows=problem.key_tokens, depth=d, columns=problem.value_dim),
    )


def _attention(problem: Problem, tiles: Tiles) -> Count:
    if "panel_rows" in tiles:
        return small_cache.count(problem, small_cache.cuts_of(tiles))
    return flash.count(problem, tiles)


def _words(problem: Problem, tiles: Tiles) -> int:
    return _attention(problem, tiles).words


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    attention = _attention(problem, tiles)
    parts = [projection_part(problem, p, ProjectionTiles.of(p.out, tiles)) for p in _projections(problem)]
    parts.append(Part(**{f.name: getattr(attention, f.name) for f in fields(Part)}))
    projected = sum(p.rows * p.columns for p in _projections(problem)) * problem.widths.inputs
    return joined(*parts, scratch_words=attention.scratch_words + projected)


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """A1 (n_q, d), K (n_k, d), A3 (n_k, d), X (d, d), Y (d, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    for p in _projections(problem):
        machine.reserve(p.out, (p.rows, p.columns), scratch=p.rows * p.columns)
        project(machine, p, ProjectionTiles.of(p.out, tiles))
    if "panel_rows" in tiles:
        small_cache.run_panels(machine, problem, small_cache.cuts_of(tiles))
    else:
        flash.run_blocks(machine, problem, tiles)


SCHEDULE = Schedule(
    name="input_side",
    title="Input-side attention (A1, A2, A3, X, Y)",
    direction="forward",
    source="Li et al. 2024 (arXiv 2410.09397), section 2",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    form="input-side",
)
