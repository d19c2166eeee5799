"""Fused small-cache forward: no scratch; a tile of scores is formed from streamed columns and used at once.

A tile of r x c scores stays; columns of Q and K build it; then for every feature a column of V passes and the words
of O are read, updated and written:
    words = d_k (query touches(c) + key touches(r)) + d_v (2 query touches(c) + key touches(r)) + n, about 2 sqrt(6)
    n^2 d / sqrt(M)
L stays for the block of rows; outputs are normalised all the time.
Source: this project; the loop order is that of FFPA-style kernels, which tile the head dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts.layout import Started, fill_rows, value_source
from wattention.iocomplexity.parts.products import ScoreTiles, locate, score_tiles
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_shared_values,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The tile that moves the fewest words."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    rows, key_touches = problem.query_blocks.sizes, problem.query_blocks.table
    keys = _most_keys(problem, fast_words, rows)
    fits = keys >= 1
    if not fits.any():
        raise FastMemoryTooSmallError("fused", got=fast_words, least_words=int(_room(problem, 1, 1)))
    rows, key_touches = rows[fits], key_touches[fits]
    keys, row_touches = problem.key_blocks.best_of(keys[fits])
    words = w.inputs * (d_k * row_touches + (d_k + d_v) * key_touches) + 2 * w.accumulators * d_v * row_touches
    at = int(np.argmin(words))
    return {"rows": int(rows[at]), "keys": int(keys[at])}


def _most_keys(problem: Problem, fast_words: int, rows: Any) -> Any:
    """The most keys that fit beside each number of rows; 0 where none does."""
    w = problem.widths
    free = fast_words - rows * w.statistic
    forming = np.maximum(
        (free - (rows + 1) * w.inputs) // (rows * w.accumulators),
        np.minimum((free - w.inputs) // (rows * w.accumulators + w.inputs), rows),
    )
    using = (free - rows * w.statistic - w.accumulators) // (rows * w.accumulators + w.inputs)
    return np.maximum(np.minimum(forming, using), 0)


def _room(problem: Problem, rows: Any, keys: Any) -> Any:
    """Words in use while a full tile is formed, and while it is used."""
    w = problem.widths
    forming = (np.minimum(rows, keys) + 1) * w.inputs
    using = rows * w.statistic + keys * w.inputs + w.accumulators
    return rows * keys * w.accumulators + rows * w.statistic + np.maximum(forming, using)


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    row_touches = problem.key_blocks.touches(tiles["keys"])
    key_touches = problem.query_blocks.touches(tiles["rows"])
    blind = problem.rows - problem.q1
    return Count(
        loads=w.inputs * (d_k * row_touches + (d_k + d_v) * key_touches)
        + (row_touches - problem.q1) * d_v * w.accumulators,
        stores=(row_touches + blind) * d_v * w.accumulators + problem.rows * w.statistic,
        statistics_loads=0,
        statistics_stores=problem.rows * w.statistic,
        peak=int(_room(problem, tiles["rows"], tiles["keys"])),
        multiply_adds=problem.pairs * (d_k + d_v),
        exponentials=problem.pairs,
        scratch_words=0,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    machine.reserve("O", (problem.rows, problem.value_dim), role="accumulators")
    machine.reserve("L", (problem.rows, 1), role="statistics")
    cut = ScoreTiles(rows=tiles["rows"], keys=tiles["keys"], panel=0)
    features = slice(0, problem.value_dim)
    started = Started(problem.rows)
    for block in problem.query_blocks.cut(cut.rows):
        with machine.maxima(block.stop - block.start, name="L") as log_normaliser:
            for _, pair, s in score_tiles(machine, problem, cut, block, left="Q", right="K", scale=problem.score_scale):
                with machine.statistics(pair.height) as decay:
                    s.log_softmax(log_normaliser.part(rows=locate(pair.rows, block)), decay, over=pair)
                    values = machine.slow(value_source(problem), pair.keys, features)
                    fresh = started.fresh(pair.rows)
                    machine.accumulate("O", pair.rows, features, s, values, fresh=fresh, decay=decay, over=pair)
            machine.store(log_normaliser, "L", block)
    fill_rows(machine, started.rest(), O=0.0)


SCHEDULE = Schedule(
    name="fused",
    title="Fused small-cache (no scratch)",
    direction="forward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
