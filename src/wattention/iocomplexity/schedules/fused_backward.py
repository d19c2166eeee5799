"""Fused small-cache backward: no scratch; P and dS of a tile are formed from streamed columns and used at once.

For every tile of r x c pairs three loops over features: columns of Q and K make P; columns of dO and V make dP while
words of dV are read, updated and written; columns of K and Q pass once more while words of dQ and dK grow:
    words = (2 d_k + d_v)(query touches(c) + key touches(r)) + d_k (2 query touches(c) - n_q)
        + (d_k + d_v)(2 key touches(r) - n_k) + statistics,     about 2 sqrt(70) n^2 d / sqrt(M)
Source: this project.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.gradients import DeltaTiles, delta_part, least_for_delta, make_delta, plan_delta
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import ScoreTiles, feature_blocks, locate, score_tiles
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.problem.masks import Bools
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The tile that moves the fewest words."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    delta = plan_delta(problem, fast_words)
    rows, key_touches = problem.query_blocks.sizes, problem.query_blocks.table
    keys = _most_keys(problem, fast_words, rows)
    fits = keys >= 1
    if delta is None or not fits.any():
        least = max(least_for_delta(problem), int(_room(problem, 1, 1)))
        raise FastMemoryTooSmallError("fused_backward", got=fast_words, least_words=least)
    rows, key_touches = rows[fits], key_touches[fits]
    keys, row_touches = problem.key_blocks.best_of(keys[fits])
    words = (2 * d_k + d_v) * w.inputs * (row_touches + key_touches)
    words = words + 2 * w.accumulators * (d_k * row_touches + (d_k + d_v) * key_touches)
    at = int(np.argmin(words))
    return {"delta_rows": delta.rows, "delta_dim": delta.dim, "rows": int(rows[at]), "keys": int(keys[at])}


def _room(problem: Problem, rows: Any, keys: Any) -> Any:
    """Words in use: two tiles and a column of dO; one tile and a column of K or Q; or one tile in the making."""
    w = problem.widths
    tile = rows * keys * w.accumulators
    both = 2 * tile + rows * w.inputs + max(w.inputs, w.accumulators)
    last = tile + np.maximum(rows, keys) * w.inputs + w.accumulators
    forming = tile + (np.minimum(rows, keys) + 1) * w.inputs
    return 2 * rows * w.statistic + np.maximum(np.maximum(both, last), forming)


def _most_keys(problem: Problem, fast_words: int, rows: Any) -> Any:
    """The most keys that fit beside each number of rows; 0 where none does."""
    w = problem.widths
    free, column = fast_words - 2 * rows * w.statistic, rows * w.accumulators
    both = (free - rows * w.inputs - max(w.inputs, w.accumulators)) // (2 * column)
    last = np.minimum(
        (free - rows * w.inputs - w.accumulators) // column, (free - w.accumulators) // (column + w.inputs)
    )
    forming = np.maximum((free - (rows + 1) * w.inputs) // column, (free - w.inputs) // (column + w.inputs))
    return np.maximum(np.minimum(np.minimum(both, last), forming), 0)


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    row_touches = problem.key_blocks.touches(tiles["keys"])
    key_touches = problem.query_blocks.touches(tiles["rows"])
    blind_rows, blind_keys = problem.rows - problem.q1, problem.key_tokens - problem.k1
    returns = (row_touches - problem.q1) * d_k + (key_touches - problem.k1) * (d_k + d_v)
    visits = (row_touches + blind_rows) * d_k + (key_touches + blind_keys) * (d_k + d_v)
    statistics = 2 * problem.q1 * w.statistic
    tiles_part = Part(
        loads=(2 * d_k + d_v) * (row_touches + key_touches) * w.inputs + returns * w.accumulators + statistics,
        stores=visits * w.accumulators,
        statistics_loads=statistics,
        peak=int(_room(problem, tiles["rows"], tiles["keys"])),
        multiply_adds=problem.pairs * (3 * d_k + 2 * d_v),
        exponentials=problem.pairs,
    )
    return joined(delta_part(problem, DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"])), tiles_part)


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    make_delta(machine, problem, DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]))
    machine.reserve("dQ", (problem.rows, problem.key_dim), role="accumulators")
    machine.reserve("dK", (problem.key_tokens, problem.key_dim), role="accumulators")
    machine.reserve("dV", (problem.key_tokens, problem.value_dim), role="accumulators")
    rows_started, keys_started = Started(problem.rows), Started(problem.key_tokens)
    cut = ScoreTiles(rows=tiles["rows"], keys=tiles["keys"], panel=0)
    for block in problem.query_blocks.cut(cut.rows):
        live = problem.tile(block, slice(0, problem.key_tokens))
        if not live.pairs:
            continue
        with machine.load("L", live.rows) as log_normaliser, machine.load("D", live.rows) as delta:
            for _, pair, p in score_tiles(machine, problem, cut, block, left="Q", right="K", scale=problem.score_scale):
                own = locate(pair.rows, live.rows)
                p.exp_minus(log_normaliser.part(rows=own), over=pair)
                fresh_keys = keys_started.fresh(pair.keys)
                with machine.zeros(pair.height, pair.width, name="dP") as d_s:
                    _score_gradients(machine, problem, pair, p=p, d_s=d_s, fresh_keys=fresh_keys)
                    d_s.to_score_gradient(p, delta.part(rows=own), over=pair, scale=problem.score_scale)
                    p.free()
                    fresh = rows_started.fresh(pair.rows)
                    _spread(machine, problem, pair, d_s, fresh=fresh, fresh_keys=fresh_keys)
    fill_rows(machine, rows_started.rest(), dQ=0.0)
    fill_rows(machine, keys_started.rest(), dK=0.0, dV=0.0)


def _score_gradients(
    machine: Machine, problem: Problem, pair: PairTile, *, p: Tile, d_s: Tile, fresh_keys: Bools
) -> None:
    """One column of dO at a time makes dP, and adds to dV."""
    for feature in feature_blocks(problem.value_dim, 1):
        with machine.load("dO", pair.rows, feature) as column:
            d_s.add_product(column, machine.slow("V", pair.keys, feature).T, onto=pair)
            machine.accumulate("dV", pair.keys, feature, p.T, column, fresh=fresh_keys, over=pair)


def _spread(machine: Machine, problem: Problem, pair: PairTile, d_s: Tile, *, fresh: Bools, fresh_keys: Bools) -> None:
    """dS adds to dQ and dK."""
    features = slice(0, problem.key_dim)
    keys, queries = machine.slow("K", pair.keys, features), machine.slow("Q", pair.rows, features)
    machine.accumulate("dQ", pair.rows, features, d_s, keys, fresh=fresh, over=pair)
    machine.accumulate("dK", pair.keys, features, d_s.T, queries, fresh=fresh_keys, over=pair)


SCHEDULE = Schedule(
    name="fused_backward",
    title="Fused small-cache backward (no scratch)",
    direction="backward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
)
