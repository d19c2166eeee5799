"""Small-cache backward in which dP and dV share one pass: V and dV of c keys stay, dO streams past once for both.

    1  P = exp(s Q K^T - L)                        score product, stores P                     min(x^2, 2x) + 1
    2  dV += P^T dO, dS = s P (dO V^T - D)         c keys resident, P loaded, dS stored over it        2 x^2 + 2
    3  dQ = dS K,  4  dK = dS^T Q                  gather products                     2 min over h (h + x^2 / h)

With x = d / sqrt(M) that is 5 x^2 + 5 words a pair for 1/2 <= x^2 <= 2, one word less than five products apart, since
P is loaded once for both of its uses: fewest words of all for 0.4 d^2 < M < 1.33 d^2. Phase 2 holds
    c (d_v (w_in + w_acc) + w_acc + w_scratch) + d_v w_in + w_stat <= M.
Five products, fixed order of summation, E words of scratch. Source: this project, docs/theory/tightness.md.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    delta_part,
    gather,
    gather_part,
    least_for_delta,
    make_delta,
    plan_delta,
)
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import (
    GatherNeeds,
    GatherTiles,
    ScoreNeeds,
    ScoreTiles,
    least_for_gather,
    least_for_scores,
    locate,
    plan_gather,
    plan_scores,
    score_loads,
    score_peak,
    score_tiles,
)
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The best cut of each phase; in phase 2 the largest useful block of keys, and as many queries as are left."""
    needs, score = _gather_needs(problem), _score_needs(problem)
    delta, p = plan_delta(problem, fast_words), plan_scores(problem, fast_words, score)
    dq = plan_gather(problem, problem.query_blocks, fast_words, needs)
    dk = plan_gather(problem, problem.key_blocks, fast_words, needs)
    if delta is None or p is None or dq is None or dk is None or fast_words < _pass_room(problem, 1, 1):
        least = max(
            least_for_delta(problem),
            least_for_scores(problem, score),
            least_for_gather(problem, needs),
            _pass_room(problem, 1, 1),
        )
        raise FastMemoryTooSmallError("merged_backward", got=fast_words, least_words=least)
    row = _pass_room(problem, 0, 1)
    keys = problem.key_blocks.best((fast_words - row) // (_pass_room(problem, 1, 1) - row))
    resident = _pass_room(problem, keys, 0)
    rows = (fast_words - resident) // (_pass_room(problem, keys, 1) - resident)
    return {
        "delta_rows": delta.rows,
        "delta_dim": delta.dim,
        "p_rows": p.rows,
        "p_keys": p.keys,
        "p_panel": p.panel,
        "keys": keys,
        "rows": min(rows, problem.rows),
        "dq_length": dq.length,
        "dq_dim": dq.width,
        "dk_length": dk.length,
        "dk_dim": dk.width,
    }


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, pairs, cut, needs = problem.widths, problem.pairs, _score_cut(tiles), _gather_needs(problem)
    statistics = problem.q1 * w.statistic
    form_p = Part(
        loads=score_loads(problem, cut, _score_needs(problem)) + statistics,
        stores=pairs * w.scratch,
        statistics_loads=statistics,
        peak=score_peak(problem, cut, _score_needs(problem)),
        multiply_adds=pairs * problem.key_dim,
        exponentials=pairs,
    )
    dq, dk = _gather_cuts(tiles)
    return joined(
        delta_part(problem, _delta_cut(tiles)),
        form_p,
        _pass_part(problem, tiles),
        gather_part(problem, dq, needs, out="queries", visits=problem.q1, rounds=1),
        gather_part(problem, dk, needs, out="keys", visits=problem.k1, rounds=1),
        scratch_words=pairs * w.scratch,
    )


def _pass_part(problem: Problem, tiles: Tiles) -> Part:
    w, d_v, pairs = problem.widths, problem.value_dim, problem.pairs
    touches = problem.key_blocks.touches(tiles["keys"])
    return Part(
        loads=(problem.k1 + touches) * d_v * w.inputs + touches * w.statistic + pairs * w.scratch,
        stores=problem.key_tokens * d_v * w.inputs + pairs * w.scratch,
        statistics_loads=touches * w.statistic,
        peak=_pass_room(problem, tiles["keys"], tiles["rows"]),
        multiply_adds=2 * pairs * d_v,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    make_delta(machine, problem, _delta_cut(tiles))
    machine.reserve("dQ", (problem.rows, problem.key_dim))
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    machine.reserve("P", (problem.rows, problem.key_tokens), role="scratch", scratch=problem.pairs)
    cut = _score_cut(tiles)
    for block in problem.query_blocks.cut(cut.rows):
        _probabilities_of_block(machine, problem, cut, block)
    for block in problem.key_blocks.cut(tiles["keys"]):
        _key_block(machine, problem, tiles["rows"], block)
    rows, keys = slice(0, problem.rows), slice(0, problem.key_tokens)
    for into, other, gather_cut in zip(("dQ", "dK"), ("K", "Q"), _gather_cuts(tiles), strict=True):
        started = Started(problem.rows if into == "dQ" else problem.key_tokens)
        gather(machine, problem, gather_cut, into=into, pairs="P", other=other, rows=rows, keys=keys, started=started)
        fill_rows(machine, started.rest(), **{into: 0.0})
    machine.discard("P")


def _probabilities_of_block(machine: Machine, problem: Problem, cut: ScoreTiles, block: slice) -> None:
    """Phase 1 of one block of queries."""
    live = problem.tile(block, slice(0, problem.key_tokens))
    if live.pairs:
        with machine.load("L", live.rows) as log_normaliser:
            for _, pair, p in score_tiles(machine, problem, cut, block, left="Q", right="K", scale=problem.score_scale):
                p.exp_minus(log_normaliser.part(rows=locate(pair.rows, live.rows)), over=pair)
                machine.store(p, "P", pair.rows, pair.keys, where=pair.mask)


def _key_block(machine: Machine, problem: Problem, rows_at_once: int, block: slice) -> None:
    """Phase 2 of one block of keys."""
    live = problem.tile(slice(0, problem.rows), block)
    seen = np.zeros(block.stop - block.start, np.bool_)
    if live.pairs:
        seen[locate(live.keys, block)] = True
        with (
            machine.load("V", live.keys) as v,
            machine.zeros(live.width, problem.value_dim, name="dV") as d_v,
        ):
            for rows in problem.query_blocks.cut(rows_at_once):
                pair = problem.tile(rows, block)
                if pair.pairs:
                    own = locate(pair.keys, live.keys)
                    _visit_keys(machine, problem, pair, v.part(rows=own), d_v.part(rows=own))
            machine.store(d_v, "dV", live.keys)
    fill_rows(machine, np.flatnonzero(~seen) + block.start, dV=0.0)


def _visit_keys(machine: Machine, problem: Problem, pair: PairTile, v: Tile, d_v: Tile) -> None:
    """Some rows of dO meet the resident keys: dV grows, and dS replaces P."""
    with (
        machine.load("dO", pair.rows) as d_out,
        machine.load("P", pair.rows, pair.keys, where=pair.mask) as p,
        machine.zeros(pair.height, pair.width, name="dP") as d_s,
        machine.load("D", pair.rows) as delta,
    ):
        d_v.add_product(p.T, d_out, over=pair)
        d_s.add_product(d_out, v.T, onto=pair)
        d_s.to_score_gradient(p, delta, over=pair, scale=problem.score_scale)
        machine.store(d_s, "P", pair.rows, pair.keys, where=pair.mask)


def _pass_room(problem: Problem, keys: int, rows: int) -> int:
    """Words of phase 2: V and dV; of the streaming rows dO, D and two tiles of pairs, P and dP."""
    w, d_v = problem.widths, problem.value_dim
    return keys * d_v * (w.inputs + w.accumulators) + rows * (
        keys * (w.accumulators + w.scratch) + d_v * w.inputs + w.statistic
    )


def _score_needs(problem: Problem) -> ScoreNeeds:
    return ScoreNeeds(dim=problem.key_dim, row_words=problem.widths.statistic)


def _gather_needs(problem: Problem) -> GatherNeeds:
    return GatherNeeds(dim=problem.key_dim)


def _delta_cut(tiles: Tiles) -> DeltaTiles:
    return DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"])


def _score_cut(tiles: Tiles) -> ScoreTiles:
    return ScoreTiles(rows=tiles["p_rows"], keys=tiles["p_keys"], panel=tiles["p_panel"])


def _gather_cuts(tiles: Tiles) -> tuple[GatherTiles, GatherTiles]:
    return (
        GatherTiles(length=tiles["dq_length"], width=tiles["dq_dim"]),
        GatherTiles(length=tiles["dk_length"], width=tiles["dk_dim"]),
    )


SCHEDULE = Schedule(
    name="merged_backward",
    title="Small-cache backward, dP with dV",
    direction="backward",
    source="this project, docs/theory/tightness.md",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
)
