"""Small-cache forward that stores the scores themselves: no tile maxima move, exponentials are taken where P is used.

    1  S = s Q K^T         score product with m and l resident; S is stored as it is, then absorbed; L stored
    2  O = exp(S - L) V    O tile and L resident, S loaded, exponentials taken, words of V stream

    words = d_k (touches of phase 1) + E (1 + h) + d_v (key touches(r) + n) + (1 + h) n,   h = ceil(d_v / f)
    about T(x) + 1 + min over h (h + x^2 / h) a pair, T = min(x^2, 2 x), x = d / sqrt(M)

Without the 2 / c words a pair that maxima of c keys cost: it matters where a resident panel of Q leaves room for a few
keys only, for d^2 / 4 < M < d^2. Exponentials are always of S - m <= 0 or S - L <= 0, hence stable; but scratch must
hold S at full precision, since an absolute error of S is a relative error of P (exp(S - m) may be stored in half).
Source: the idea of Saha and Ye 2024 (arXiv 2402.07443), tiles and constants of this project.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.layout import value_source
from wattention.iocomplexity.parts.products import (
    ScoreNeeds,
    ScoreTiles,
    feature_blocks,
    least_for_scores,
    locate,
    plan_scores,
    score_loads,
    score_peak,
    score_tiles,
)
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile, equalised_sizes
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_shared_values,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The best cut of each phase; in phase 2 as many keys at a time as are left."""
    scores = plan_scores(problem, fast_words, _score_needs(problem))
    w, d_v = problem.widths, problem.value_dim
    features = equalised_sizes(d_v)
    rows = (fast_words - w.inputs) // (features * w.accumulators + w.statistic + w.scratch)
    fits = rows >= 1
    if scores is None or not fits.any():
        least = max(least_for_scores(problem, _score_needs(problem)), _sum_room(problem, 1, 1, 1))
        raise FastMemoryTooSmallError("small_cache_raw", got=fast_words, least_words=least)
    features = features[fits]
    rows, touches = problem.query_blocks.best_of(rows[fits])
    panels = -(-d_v // features)
    words = panels * (problem.pairs * w.scratch + problem.q1 * w.statistic) + d_v * w.inputs * touches
    at = int(np.argmin(words))
    r, f = int(rows[at]), int(features[at])
    keys = (fast_words - _sum_room(problem, r, f, 0)) // (r * w.scratch)
    return {
        "rows": scores.rows,
        "keys": scores.keys,
        "panel": scores.panel,
        "out_rows": r,
        "out_dim": f,
        "out_keys": min(keys, problem.key_tokens),
    }


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, pairs, cut, d_v = problem.widths, problem.pairs, _score_cut(tiles), problem.value_dim
    panels = -(-d_v // tiles["out_dim"])
    statistics = panels * problem.q1 * w.statistic
    sums = panels * pairs * w.scratch + d_v * w.inputs * problem.query_blocks.touches(tiles["out_rows"])
    return Count(
        loads=score_loads(problem, cut, _score_needs(problem)) + sums + statistics,
        stores=pairs * w.scratch + problem.rows * (d_v * w.inputs + w.statistic),
        statistics_loads=statistics,
        statistics_stores=problem.rows * w.statistic,
        peak=max(
            score_peak(problem, cut, _score_needs(problem)),
            _sum_room(problem, tiles["out_rows"], tiles["out_dim"], tiles["out_keys"]),
        ),
        multiply_adds=pairs * (problem.key_dim + d_v),
        exponentials=pairs * (1 + panels),
        scratch_words=pairs * w.scratch,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    machine.reserve("O", (problem.rows, problem.value_dim))
    machine.reserve("L", (problem.rows, 1), role="statistics")
    machine.reserve("S", (problem.rows, problem.key_tokens), role="scratch", scratch=problem.pairs)
    cut = _score_cut(tiles)
    for block in problem.query_blocks.cut(cut.rows):
        _scores_of_block(machine, problem, cut, block)
    for block in problem.query_blocks.cut(tiles["out_rows"]):
        for features in feature_blocks(problem.value_dim, tiles["out_dim"]):
            _output_of_block(machine, problem, tiles["out_keys"], block, features)
    machine.discard("S")


def _scores_of_block(machine: Machine, problem: Problem, cut: ScoreTiles, block: slice) -> None:
    """Phase 1 of one block of rows."""
    height = block.stop - block.start
    with machine.maxima(height) as m, machine.statistics(height) as sums:
        for _, pair, tile in score_tiles(machine, problem, cut, block, left="Q", right="K", scale=problem.score_scale):
            machine.store(tile, "S", pair.rows, pair.keys, where=pair.mask)
            own = locate(pair.rows, block)
            tile.online_softmax(m.part(rows=own), sums.part(rows=own), over=pair)
        sums.to_log_normaliser(m)
        machine.store(sums, "L", block)


def _output_of_block(machine: Machine, problem: Problem, keys_at_once: int, block: slice, features: slice) -> None:
    """Phase 2 of one tile of the output."""
    with machine.zeros(block.stop - block.start, features.stop - features.start) as out:
        live = problem.tile(block, slice(0, problem.key_tokens))
        if live.pairs:
            with machine.load("L", live.rows) as log_normaliser:
                for keys in problem.key_blocks.cut(keys_at_once):
                    pair = problem.tile(block, keys)
                    if pair.pairs:
                        part = out.part(rows=locate(pair.rows, block))
                        own = log_normaliser.part(rows=locate(pair.rows, live.rows))
                        _add_values(machine, problem, pair, out=part, log_normaliser=own, features=features)
        machine.store(out, "O", block, features)


def _add_values(
    machine: Machine, problem: Problem, pair: PairTile, *, out: Tile, log_normaliser: Tile, features: slice
) -> None:
    """Some keys of phase 2."""
    with machine.load("S", pair.rows, pair.keys, where=pair.mask) as p:
        p.exp_minus(log_normaliser, over=pair)
        out.add_product(p, machine.slow(value_source(problem), pair.keys, features), over=pair)


def _sum_room(problem: Problem, rows: int, features: int, keys: int) -> int:
    """Words of phase 2: a tile of O, L, a tile of S, and one word of V."""
    w = problem.widths
    return rows * (features * w.accumulators + w.statistic + keys * w.scratch) + w.inputs


def _score_needs(problem: Problem) -> ScoreNeeds:
    w = problem.widths.statistic
    return ScoreNeeds(dim=problem.key_dim, row_words=2 * w, after_words=w)


def _score_cut(tiles: Tiles) -> ScoreTiles:
    return ScoreTiles(rows=tiles["rows"], keys=tiles["keys"], panel=tiles["panel"])


SCHEDULE = Schedule(
    name="small_cache_raw",
    title="Small-cache, scores stored",
    direction="forward",
    source="idea: Saha and Ye 2024 (arXiv 2402.07443); tiles: this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
