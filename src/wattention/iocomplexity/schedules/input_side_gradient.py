"""Gradient of input-side attention with respect to X, the problem whose I/O complexity Li et al. settle.

    T = A1 X, H = A3 Y                  dense products
    D, P, dS                            as in the small-cache backward, dS overwrites P
    U = dS A2, G = A1^T U               gather product, dense product
    about (6 n^2 d + 6 n d^2) / sqrt(M) + 3 n^2 words for M < d^2, given dO, O and L of the forward
A2 lies in slow memory under the name K; T, H and U are scratch under the names Q, V and dQ; the result is dX (d, d).
Source: Li et al. 2024 (arXiv 2410.09397), definition of the gradient and theorem 4.3; phases and tiles of this project.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import small_cache_backward
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    delta_part,
    gather_part,
    least_for_delta,
    make_delta,
    plan_delta,
)
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import (
    GatherTiles,
    ScoreTiles,
    least_for_gather,
    least_for_scores,
    plan_gather,
    plan_scores,
    score_loads,
    score_peak,
)
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
    """Each phase by itself gets the whole fast memory."""
    p_needs, dp_needs, _, k_needs = small_cache_backward.needs_of(problem)
    delta = plan_delta(problem, fast_words)
    p, dp = plan_scores(problem, fast_words, p_needs), plan_scores(problem, fast_words, dp_needs)
    dq = plan_gather(problem, problem.query_blocks, fast_words, k_needs)
    projections = {product.out: plan_projection(problem, product, fast_words) for product in _projections(problem)}
    if delta is None or p is None or dp is None or dq is None or None in projections.values():
        scores = max(least_for_scores(problem, p_needs), least_for_scores(problem, dp_needs))
        others = max(least_for_delta(problem), least_for_gather(problem, k_needs), least_for_projection(problem))
        raise FastMemoryTooSmallError("input_side_gradient", got=fast_words, least_words=max(scores, others))
    flat = {"delta_rows": delta.rows, "delta_dim": delta.dim, "dq_length": dq.length, "dq_dim": dq.width}
    for name, score in (("p", p), ("dp", dp)):
        flat |= {f"{name}_rows": score.rows, f"{name}_keys": score.keys, f"{name}_panel": score.panel}
    for name, tiles in projections.items():
        assert tiles is not None
        flat |= tiles.as_tiles(name)
    return flat


def _projections(problem: Problem) -> tuple[Projection, Projection, Projection]:
    d = problem.key_dim
    return (
        Projection(out="Q", left="A1", right="X", rows=problem.rows, depth=d, columns=d),
        Projection(out="V", left="A3", right="Y", rows=problem.key_tokens, depth=d, columns=problem.value_dim),
        Projection(out="dX", left="A1", right="dQ", rows=d, depth=problem.rows, columns=d, turned=True),
    )


def _score_cut(name: str, tiles: Tiles) -> ScoreTiles:
    return ScoreTiles(rows=tiles[f"{name}_rows"], keys=tiles[f"{name}_keys"], panel=tiles[f"{name}_panel"])


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, pairs = problem.widths, problem.pairs
    p_needs, dp_needs, _, k_needs = small_cache_backward.needs_of(problem)
    statistics = problem.q1 * w.statistic
    form_p = Part(
        loads=score_loads(problem, _score_cut("p", tiles), p_needs) + statistics,
        stores=pairs * w.scratch,
        statistics_loads=statistics,
        peak=score_peak(problem, _score_cut("p", tiles), p_needs),
        multiply_adds=pairs * problem.key_dim,
        exponentials=pairs,
    )
    form_ds = Part(
        loads=score_loads(problem, _score_cut("dp", tiles), dp_needs) + statistics + pairs * w.scratch,
        stores=pairs * w.scratch,
        statistics_loads=statistics,
        peak=score_peak(problem, _score_cut("dp", tiles), dp_needs),
        multiply_adds=pairs * problem.value_dim,
    )
    dq = GatherTiles(length=tiles["dq_length"], width=tiles["dq_dim"])
    scratch = 2 * problem.rows * problem.key_dim + problem.key_tokens * problem.value_dim
    return joined(
        *(projection_part(problem, p, ProjectionTiles.of(p.out, tiles)) for p in _projections(problem)),
        delta_part(problem, DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"])),
        form_p,
        form_ds,
        gather_part(problem, dq, k_needs, out="queries", visits=problem.q1, rounds=1),
        scratch_words=scratch * w.inputs + pairs * w.scratch,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """A1 (n_q, d), K (n_k, d), A3 (n_k, d), X, Y, dO, O, L -> dX (d, d)."""
    to_query, to_value, to_result = _projections(problem)
    for p in (to_query, to_value):
        machine.reserve(p.out, (p.rows, p.columns), scratch=p.rows * p.columns)
        project(machine, p, ProjectionTiles.of(p.out, tiles))
    make_delta(machine, problem, DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]))
    machine.reserve("P", (problem.rows, problem.key_tokens), role="scratch", scratch=problem.pairs)
    machine.reserve("dQ", (problem.rows, problem.key_dim), scratch=problem.rows * problem.key_dim)
    machine.reserve("dX", (problem.key_dim, problem.key_dim))
    for block in problem.query_blocks.cut(tiles["p_rows"]):
        small_cache_backward.probabilities_of_block(machine, problem, _score_cut("p", tiles), block, 0)
    for block in problem.query_blocks.cut(tiles["dp_rows"]):
        small_cache_backward.score_gradients_of_block(machine, problem, _score_cut("dp", tiles), block, 0)
    started, rows = Started(problem.rows), slice(0, problem.rows)
    cut = GatherTiles(length=tiles["dq_length"], width=tiles["dq_dim"])
    small_cache_backward.gather_panel(machine, problem, cut, into="dQ", other="K", panel=rows, started=started)
    fill_rows(machine, started.rest(), dQ=0.0)
    project(machine, to_result, ProjectionTiles.of(to_result.out, tiles))


SCHEDULE = Schedule(
    name="input_side_gradient",
    title="Gradient of input-side attention (dX)",
    direction="backward",
    source="Li et al. 2024 (arXiv 2410.09397), theorem 4.3",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    form="input-side",
)
