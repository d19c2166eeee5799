"""One-pass backward with queries resident: Q, dO and dQ stay, K and V stream past, dK and dV are read and written.

The mirror of FlashAttention-2's order. A resident query takes 2 d_k + d_v words where a resident key takes 2 (d_k +
d_v),
so from M = n (2 d_k + d_v) on, a quarter less than the mirror needs, one block holds all queries and only compulsory
traffic is left. Below that it moves about 18 n^2 d^2 / M words, and wins only while few blocks suffice.

    r ((d_k + d_v) + d_k + 2) + c (2 (d_k + d_v) + 2 b) <= M, with b rows of a tile of pairs at a time,
    words = n_q (2 d_k + 2 d_v + 1) + (d_k + d_v) (3 key touches(r) - n_k)
D is made where dO already lies, so dO is not read a second time for it and D never leaves fast memory.
Source: this project.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.problem.masks import Bools, Ints
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The block of queries that moves the fewest words, then the largest block of keys, then the tallest tile."""
    least = _room(problem, 1, 1, 1)
    if fast_words < least:
        raise FastMemoryTooSmallError("queries_stay", got=fast_words, least_words=least)
    blocks, limit = problem.query_blocks, (fast_words - _room(problem, 0, 1, 1)) // _room(problem, 1, 0, 0)
    fitting = int(np.searchsorted(blocks.sizes, limit, side="right"))
    rows = int(blocks.sizes[np.argmin(_key_traffic(problem, blocks.sizes[:fitting], blocks.table[:fitting]))])
    left = fast_words - _room(problem, rows, 0, 0)
    keys = min(problem.key_tokens, left // _room(problem, 0, 1, 1))
    step = (left - _room(problem, 0, keys, 0)) // (2 * keys * problem.widths.accumulators)
    return {"rows": rows, "keys": keys, "step": min(step, rows)}


def _key_traffic(problem: Problem, rows: Ints, touches: Ints) -> Ints:
    """Words of K, V, dK and dV; with one block dK and dV are written once, at the width of outputs."""
    w = problem.widths
    sums = 2 * (touches - problem.k1) + problem.key_tokens
    width = np.where(rows >= problem.rows, w.inputs, w.accumulators)
    return np.asarray((problem.key_dim + problem.value_dim) * (touches * w.inputs + sums * width))


def _room(problem: Problem, rows: int, keys: int, step: int) -> int:
    """Words in use: Q, dO, dQ, L, D of the rows; K, V, dK, dV of the keys; two tiles of step x keys pairs."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    row = (d_k + d_v) * w.inputs + d_k * w.accumulators + 2 * w.statistic
    return rows * row + keys * ((d_k + d_v) * (w.inputs + w.accumulators) + 2 * step * w.accumulators)


def _sum_role(problem: Problem, tiles: Tiles) -> str:
    """With one block dK and dV are written once, as outputs; else they come back as sums."""
    return "inputs" if tiles["rows"] >= problem.rows else "accumulators"


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    p, w = problem, problem.widths
    touches = p.query_blocks.touches(tiles["rows"])
    key_width, sum_width = p.key_dim + p.value_dim, w.of(_sum_role(p, tiles))
    statistics = p.q1 * (w.statistic + p.value_dim * w.inputs)  # L, and O for D
    main = Part(
        loads=(p.q1 + touches) * key_width * w.inputs + (touches - p.k1) * key_width * sum_width + statistics,
        stores=p.rows * p.key_dim * w.inputs + (touches + p.key_tokens - p.k1) * key_width * sum_width,
        statistics_loads=statistics,
        peak=_room(p, tiles["rows"], tiles["keys"], tiles["step"]),
        multiply_adds=p.pairs * (3 * p.key_dim + 2 * p.value_dim) + p.q1 * p.value_dim,
        exponentials=p.pairs,
    )
    return joined(main)


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    role = _sum_role(problem, tiles)
    machine.reserve("dQ", (problem.rows, problem.key_dim))
    machine.reserve("dK", (problem.key_tokens, problem.key_dim), role=role)
    machine.reserve("dV", (problem.key_tokens, problem.value_dim), role=role)
    started = Started(problem.key_tokens)
    for block in problem.query_blocks.cut(tiles["rows"]):
        with machine.zeros(block.stop - block.start, problem.key_dim, name="dQ") as d_q:
            live = problem.tile(block, slice(0, problem.key_tokens))
            if live.pairs:
                _query_block(machine, problem, tiles, block, live, d_q, started)
            machine.store(d_q, "dQ", block)
    fill_rows(machine, started.rest(), dK=0.0, dV=0.0)


def _query_block(
    machine: Machine, problem: Problem, tiles: Tiles, block: slice, live: PairTile, d_q: Tile, started: Started
) -> None:
    """All keys pass the resident queries of one block."""
    with (
        machine.load("Q", live.rows) as q,
        machine.load("dO", live.rows) as d_out,
        machine.load("L", live.rows) as log_normaliser,
        machine.statistics(live.height, name="D") as delta,
    ):
        _make_delta(machine, problem, live, d_out, delta)
        for keys in problem.key_blocks.cut(tiles["keys"]):
            seen = problem.tile(block, keys)
            if not seen.pairs:
                continue
            fresh = started.fresh(seen.keys)
            with (
                machine.load("K", seen.keys) as k,
                machine.load("V", seen.keys) as v,
                _sum(machine, "dK", seen, fresh, problem.key_dim) as d_k,
                _sum(machine, "dV", seen, fresh, problem.value_dim) as d_v,
            ):
                for rows in problem.query_blocks.cut(tiles["step"], block):
                    pair = problem.tile(rows, keys)
                    if pair.pairs:
                        own, theirs = locate(pair.rows, live.rows), locate(pair.keys, seen.keys)
                        queries = tuple(tile.part(rows=own) for tile in (q, d_out, log_normaliser, delta))
                        sums = (d_q.part(rows=locate(pair.rows, block)), d_k.part(rows=theirs), d_v.part(rows=theirs))
                        _visit(machine, problem, pair, queries, (k.part(rows=theirs), v.part(rows=theirs)), sums)
                machine.store(d_k, "dK", seen.keys)
                machine.store(d_v, "dV", seen.keys)


def _make_delta(machine: Machine, problem: Problem, live: PairTile, d_out: Tile, delta: Tile) -> None:
    """D of the resident rows, one row of O at a time, in the room that keys will take later."""
    rows = np.arange(problem.rows)[live.rows]
    with machine.as_statistics():
        for i, row in enumerate(rows):
            own = slice(i, i + 1)
            with machine.load("O", slice(int(row), int(row) + 1)) as out:
                delta.part(rows=own).add_row_dots(d_out.part(rows=own), out)


def _sum(machine: Machine, name: str, seen: PairTile, fresh: Bools, dim: int) -> Tile:
    """The sums of some keys: those that earlier blocks have started are loaded, the others are zero."""
    if fresh.all():
        return machine.zeros(seen.width, dim, name=name)
    return machine.load(name, seen.keys, where=np.broadcast_to(~fresh[:, None], (seen.width, dim)))


def _visit(
    machine: Machine,
    problem: Problem,
    pair: PairTile,
    queries: tuple[Tile, ...],
    keys: tuple[Tile, Tile],
    sums: tuple[Tile, Tile, Tile],
) -> None:
    """One tile of pairs: P, dV, dP, dS, dQ and dK."""
    (q, d_out, log_normaliser, delta), (k, v), (d_q, d_k, d_v) = queries, keys, sums
    with (
        machine.zeros(pair.height, pair.width, name="P") as p,
        machine.zeros(pair.height, pair.width, name="dP") as d_s,
    ):
        p.add_product(q, k.T, onto=pair, scale=problem.score_scale)
        p.exp_minus(log_normaliser, over=pair)
        d_v.add_product(p.T, d_out, over=pair)
        d_s.add_product(d_out, v.T, onto=pair)
        d_s.to_score_gradient(p, delta, over=pair, scale=problem.score_scale)
        d_q.add_product(d_s, k, over=pair)
        d_k.add_product(d_s.T, q, over=pair)


SCHEDULE = Schedule(
    name="queries_stay",
    title="One pass, queries resident",
    direction="backward",
    source="this project: the mirror of FlashAttention-2's backward order",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
)
