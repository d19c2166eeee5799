"""Keys and values stay, queries stream past, and their outputs are read, updated and written once for every key block.

Words of one block of c keys: K (d_k), V (d_v) and b columns of scores; L and a decay factor for each of b queries;
one word of Q or O at a time:
    c (d_k + d_v + b) + 2 b + 1 <= M,   words = (d_k + 2 d_v + 2) query touches(c) + n (2 d_k + ...), about 6 n^2 d^2
    / M
The state of a row is one statistic, L = m + log l: outputs stay normalised.
Source: loop order of FlashAttention (Dao et al. 2022), algorithm 1, with rows of one query.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.layout import Started, fill_rows, value_source
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_everything,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The largest useful block of keys, and as many queries at a time as are left."""
    w, key = problem.widths, _key_words(problem)
    least = _room(problem, 1, 1)
    if fast_words < least:
        raise FastMemoryTooSmallError("kv_stationary", got=fast_words, least_words=least)
    extra = _room(problem, 1, 1) - key - w.accumulators
    keys = problem.key_blocks.best((fast_words - extra) // (key + w.accumulators))
    left, column = fast_words - keys * key, keys * w.accumulators
    rows = min((left - w.inputs) // column, (left - w.accumulators) // (column + 2 * w.statistic))
    return {"keys": keys, "rows": min(problem.rows, rows)}


def _room(problem: Problem, keys: int, rows: int) -> int:
    """Words in use while scores are formed, and while they are used."""
    w = problem.widths
    using = max(w.inputs, 2 * rows * w.statistic + w.accumulators)
    return keys * (_key_words(problem) + rows * w.accumulators) + using


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    touches = problem.key_blocks.touches(tiles["keys"])
    blind = problem.rows - problem.q1
    returns, visits = touches - problem.q1, touches + blind
    return Count(
        loads=w.inputs * (problem.k1 * (d_k + d_v) + touches * d_k) + returns * (d_v * w.accumulators + w.statistic),
        stores=visits * (d_v * w.accumulators + w.statistic),
        statistics_loads=returns * w.statistic,
        statistics_stores=visits * w.statistic,
        peak=_room(problem, tiles["keys"], tiles["rows"]),
        multiply_adds=problem.pairs * (d_k + d_v),
        exponentials=problem.pairs,
        scratch_words=0,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    machine.reserve("O", (problem.rows, problem.value_dim), role="accumulators")
    machine.reserve("L", (problem.rows, 1), role="statistics")
    started = Started(problem.rows)
    for block in problem.key_blocks.cut(tiles["keys"]):
        live = problem.tile(slice(0, problem.rows), block)
        if not live.pairs:
            continue
        with machine.load("K", live.keys) as k, machine.load(value_source(problem), live.keys) as v:
            for rows in problem.query_blocks.cut(tiles["rows"]):
                pair = problem.tile(rows, block)
                if pair.pairs:
                    own = locate(pair.keys, live.keys)
                    _visit(machine, problem, pair, (k.part(rows=own), v.part(rows=own)), started)
    fill_rows(machine, started.rest(), O=0.0, L=float("-inf"))


def _visit(machine: Machine, problem: Problem, pair: PairTile, block: tuple[Tile, Tile], started: Started) -> None:
    """Bring some rows of O and L up to date with the resident keys."""
    k, v = block
    fresh = started.fresh(pair.rows)
    with machine.zeros(pair.height, pair.width, name="scores") as s:
        s.add_product(machine.slow("Q", pair.rows), k.T, onto=pair, scale=problem.score_scale)
        with (
            machine.load("L", pair.rows, where=~fresh[:, None], otherwise=float("-inf")) as log_normaliser,
            machine.statistics(pair.height) as decay,
        ):
            s.log_softmax(log_normaliser, decay, over=pair)
            machine.store(log_normaliser, "L", pair.rows)
            machine.accumulate("O", pair.rows, slice(None), s, v, fresh=fresh, decay=decay, over=pair)


def _key_words(problem: Problem) -> int:
    """Words of one resident key without its scores."""
    return problem.widths.inputs * (problem.key_dim + problem.value_dim)


SCHEDULE = Schedule(
    name="kv_stationary",
    title="Keys and values stationary",
    direction="forward",
    source="Dao et al. 2022, FlashAttention, algorithm 1 (loop order)",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_everything,
)
