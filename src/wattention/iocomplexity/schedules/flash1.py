"""FlashAttention-1: blocks of keys outside, blocks of queries inside, O, m and l are read and written every time.

Words of a step, B_c = c keys and B_r = r = min(c, d) queries as published: K, V, Q, O, the scores, m, l and a decay
factor:
    c (d_k + d_v) + r (d_k + d_v + 3) + r c <= M,   words = (d_k + 2 d_v + 4) query touches(c) + ..., 12 n^2 d^2 / M
    at c = r
Outputs are O, m and l, as in the paper; O is normalised all the time.
Source: Dao et al. 2022, FlashAttention, algorithm 1.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The largest useful block of keys, with the published ratio of queries to keys."""
    sizes = problem.key_blocks.sizes
    fits = np.asarray(_room(problem, np.minimum(sizes, problem.key_dim), sizes)) <= fast_words
    if not fits.any():
        raise FastMemoryTooSmallError("flash1", got=fast_words, least_words=int(_room(problem, 1, 1)))
    keys = problem.key_blocks.best(int(sizes[fits].max()))
    return {"keys": keys, "rows": min(keys, problem.key_dim, problem.rows)}


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    touches = problem.key_blocks.touches(tiles["keys"])
    blind = problem.rows - problem.q1
    returns, visits = touches - problem.q1, touches + blind
    return Count(
        loads=w.inputs * (problem.k1 * (d_k + d_v) + touches * d_k)
        + returns * (d_v * w.accumulators + 2 * w.statistic),
        stores=visits * (d_v * w.accumulators + 2 * w.statistic),
        statistics_loads=2 * returns * w.statistic,
        statistics_stores=2 * visits * w.statistic,
        peak=int(_room(problem, tiles["rows"], tiles["keys"])),
        multiply_adds=problem.pairs * (d_k + d_v),
        exponentials=problem.pairs,
        scratch_words=0,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), m and l (n_q, 1)."""
    machine.reserve("O", (problem.rows, problem.value_dim), role="accumulators")
    for name in ("m", "l"):
        machine.reserve(name, (problem.rows, 1), role="statistics")
    started = Started(problem.rows)
    for block in problem.key_blocks.cut(tiles["keys"]):
        live = problem.tile(slice(0, problem.rows), block)
        if not live.pairs:
            continue
        with machine.load("K", live.keys) as k, machine.load("V", live.keys) as v:
            for rows in problem.query_blocks.cut(tiles["rows"]):
                pair = problem.tile(rows, block)
                if pair.pairs:
                    own = locate(pair.keys, live.keys)
                    _visit(machine, problem, pair, (k.part(rows=own), v.part(rows=own)), started)
    fill_rows(machine, started.rest(), O=0.0, m=float("-inf"), l=0.0)


def _visit(machine: Machine, problem: Problem, pair: PairTile, block: tuple[Tile, Tile], started: Started) -> None:
    """Lines 8 to 13 of the paper's algorithm 1."""
    k, v = block
    old = ~started.fresh(pair.rows)[:, None]
    with (
        machine.load("Q", pair.rows) as q,
        machine.load("O", pair.rows, where=np.broadcast_to(old, (pair.height, problem.value_dim))) as out,
        machine.load("m", pair.rows, where=old, otherwise=float("-inf")) as m,
        machine.load("l", pair.rows, where=old) as sums,
        machine.zeros(pair.height, pair.width, name="scores") as s,
        machine.statistics(pair.height) as decay,
    ):
        s.add_product(q, k.T, onto=pair, scale=problem.score_scale)
        s.normalised_softmax(m, sums, decay, over=pair)
        out.scale_rows(decay)
        out.add_product(s, v, over=pair)
        for name, tile in (("O", out), ("m", m), ("l", sums)):
            machine.store(tile, name, pair.rows)


def _room(problem: Problem, rows: int | np.ndarray, keys: int | np.ndarray) -> int | np.ndarray:
    """Words of one step."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    per_row = d_k * w.inputs + d_v * w.accumulators + 3 * w.statistic
    return keys * (d_k + d_v) * w.inputs + rows * per_row + rows * keys * w.accumulators


SCHEDULE = Schedule(
    name="flash1",
    title="FlashAttention-1",
    direction="forward",
    source="Dao et al. 2022, FlashAttention, algorithm 1",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
)
