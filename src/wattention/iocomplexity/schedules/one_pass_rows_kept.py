"""One-pass backward with query rows kept: room that blocks of whole keys leave over holds Q, dO and dQ of some rows.

The order of ``one_pass`` pays 4 n d words for every block of keys after the first, and the number of blocks T jumps.
Here the idle room holds rows for good, which are then loaded, and their dQ written, only once:

    c (2 d_k + 2 d_v) + kept (2 d_k + d_v + 2) + b (2 c + d_k + d_v + 2) <= M, with b rows of a tile of pairs at a time,
    words = 2 n_k (d_k + d_v) + kept (2 d_k + d_v + 2) + (n_q - kept)(T (3 d_k + d_v + 2) - d_k) + D
    just below M = 3 n d (T = 2) a tenth fewer words than one_pass; with every row kept only compulsory traffic is left.
Rows are kept where every query sees every key; under a mask the order is that of one_pass.
Source: this project.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    KeyPassTiles,
    delta_part,
    key_pass,
    key_pass_part,
    least_for_delta,
    make_delta,
    plan_delta,
    plan_key_pass,
)
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.problem.masks import Ints
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The block of keys and the kept rows that move the fewest words together, and the tile of pairs left."""
    delta, least = plan_delta(problem, fast_words), max(least_for_delta(problem), _room(problem, 1, 0, 1))
    if delta is None or fast_words < least:
        raise FastMemoryTooSmallError("one_pass_rows_kept", got=fast_words, least_words=least)
    if not problem.mask.is_dense:
        cut = plan_key_pass(problem, fast_words)
        assert cut is not None, "one key and one row fit"
        return _tiles(delta, keys=cut.keys, kept=0, rows=cut.rows)
    sizes = problem.key_blocks.sizes
    sizes = sizes[
        : int(np.searchsorted(sizes, (fast_words - _room(problem, 0, 0, 1)) // _block_words(problem), "right"))
    ]
    kept = np.minimum(problem.rows, (fast_words - _room(problem, sizes, 0, 1)) // _row_words(problem))
    at = int(np.argmin(_row_traffic(problem, -(-problem.key_tokens // sizes), kept)))
    keys, rows = int(sizes[at]), int(kept[at])
    idle = fast_words - _room(problem, keys, rows, 0)
    step = idle // (_room(problem, keys, rows, 1) - _room(problem, keys, rows, 0))
    return _tiles(delta, keys=keys, kept=rows, rows=min(step, problem.rows))


def _tiles(delta: DeltaTiles, **others: int) -> dict[str, int]:
    return {"delta_rows": delta.rows, "delta_dim": delta.dim} | others


def _room(problem: Problem, keys: Any, kept: Any, rows: int) -> Any:
    """Words in use: K, V, dK, dV of a block; the kept rows; Q, dO, L, D and two tiles of pairs of passing rows."""
    w, dim = problem.widths, problem.key_dim + problem.value_dim
    passing = 2 * keys * w.accumulators + dim * w.inputs + 2 * w.statistic
    return keys * dim * (w.inputs + w.accumulators) + kept * _row_words(problem) + rows * passing


def _block_words(problem: Problem) -> int:
    """Words one more key of a block takes, with one row passing."""
    return int(_room(problem, 1, 0, 1) - _room(problem, 0, 0, 1))


def _row_words(problem: Problem) -> int:
    """Words of one kept row: Q, dO, dQ, L, D."""
    w = problem.widths
    return (problem.key_dim + problem.value_dim) * w.inputs + problem.key_dim * w.accumulators + 2 * w.statistic


def _row_traffic(problem: Problem, blocks: Ints, kept: Ints) -> Ints:
    """Words of Q, dO, L, D and dQ: once for kept rows, for each block of keys for the others."""
    w, d_k = problem.widths, problem.key_dim
    visit = (d_k + problem.value_dim) * w.inputs + 2 * w.statistic + d_k * w.accumulators
    return np.asarray(kept * visit + (problem.rows - kept) * (blocks * visit + (blocks - 1) * d_k * w.accumulators))


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    if not problem.mask.is_dense:
        return joined(delta_part(problem, _delta(tiles)), key_pass_part(problem, _key_pass(tiles), "read-write"))
    p, w = problem, problem.widths
    blocks, rest = -(-p.key_tokens // tiles["keys"]), p.rows - tiles["kept"]
    visits, key_words = tiles["kept"] + rest * blocks, p.key_tokens * (p.key_dim + p.value_dim) * w.inputs
    statistics, sums = 2 * visits * w.statistic, p.key_dim * w.accumulators
    main = Part(
        loads=key_words + visits * (p.key_dim + p.value_dim) * w.inputs + statistics + rest * (blocks - 1) * sums,
        stores=key_words + visits * sums,
        statistics_loads=statistics,
        peak=_peak(p, tiles),
        multiply_adds=p.pairs * (3 * p.key_dim + 2 * p.value_dim),
        exponentials=p.pairs,
    )
    return joined(delta_part(p, _delta(tiles)), main)


def _peak(problem: Problem, tiles: Tiles) -> int:
    """The larger of the rooms while kept rows and while passing rows meet a block."""
    kept, rest = min(tiles["rows"], tiles["kept"]), min(tiles["rows"], problem.rows - tiles["kept"])
    resident = _room(problem, tiles["keys"], tiles["kept"], 0)
    pairs_of_kept = 2 * kept * tiles["keys"] * problem.widths.accumulators
    return int(max(resident + pairs_of_kept, _room(problem, tiles["keys"], tiles["kept"], rest)))


def _key_pass(tiles: Tiles) -> KeyPassTiles:
    return KeyPassTiles(keys=tiles["keys"], rows=tiles["rows"])


def _delta(tiles: Tiles) -> DeltaTiles:
    return DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"])


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    make_delta(machine, problem, _delta(tiles))
    machine.reserve("dQ", (problem.rows, problem.key_dim), role="accumulators")
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    kept, started = slice(0, tiles["kept"]), Started(problem.rows)
    if not problem.mask.is_dense:
        key_pass(machine, problem, _key_pass(tiles), "read-write", started=started)
        fill_rows(machine, started.rest(), dQ=0.0)
        return
    with (
        machine.load("Q", kept) as q,
        machine.load("dO", kept) as d_out,
        machine.load("L", kept) as log_normaliser,
        machine.load("D", kept) as delta,
        machine.zeros(tiles["kept"], problem.key_dim, name="dQ") as d_q,
    ):
        for block in problem.key_blocks.cut(tiles["keys"]):
            _key_block(machine, problem, tiles, block, (q, d_out, log_normaliser, delta, d_q), started)
        machine.store(d_q, "dQ", kept)


def _key_block(
    machine: Machine, problem: Problem, tiles: Tiles, block: slice, resident: tuple[Tile, ...], started: Started
) -> None:
    """All rows meet one block of keys: first the kept ones, then the others as they stream past."""
    height, kept = block.stop - block.start, slice(0, tiles["kept"])
    with (
        machine.load("K", block) as k,
        machine.load("V", block) as v,
        machine.zeros(height, problem.key_dim, name="dK") as d_k,
        machine.zeros(height, problem.value_dim, name="dV") as d_v,
    ):
        keys = (k, v, d_k, d_v)
        for rows in problem.query_blocks.cut(tiles["rows"], kept):
            *queries, d_q = (tile.part(rows=locate(rows, kept)) for tile in resident)
            pair = problem.tile(rows, block)
            with machine.zeros(pair.height, pair.width, name="dP") as d_s:
                _meet(machine, problem, pair, queries, keys, d_s)
                d_q.add_product(d_s, k, over=pair)
        for rows in problem.query_blocks.cut(tiles["rows"], slice(kept.stop, problem.rows)):
            pair = problem.tile(rows, block)
            with (
                machine.load("Q", rows) as q,
                machine.load("dO", rows) as d_out,
                machine.load("L", rows) as log_normaliser,
                machine.load("D", rows) as delta,
                machine.zeros(pair.height, pair.width, name="dP") as d_s,
            ):
                _meet(machine, problem, pair, [q, d_out, log_normaliser, delta], keys, d_s)
                machine.accumulate("dQ", rows, slice(None), d_s, k, fresh=started.fresh(rows), over=pair)
        machine.store(d_k, "dK", block)
        machine.store(d_v, "dV", block)


def _meet(
    machine: Machine, problem: Problem, pair: PairTile, queries: list[Tile], keys: tuple[Tile, ...], d_s: Tile
) -> None:
    """Some rows meet the block: P, dV, dP, dS into ``d_s``, and dK."""
    (q, d_out, log_normaliser, delta), (k, v, d_k, d_v) = queries, keys
    with machine.zeros(pair.height, pair.width, name="P") as p:
        p.add_product(q, k.T, onto=pair, scale=problem.score_scale)
        p.exp_minus(log_normaliser, over=pair)
        d_v.add_product(p.T, d_out, over=pair)
        d_s.add_product(d_out, v.T, onto=pair)
        d_s.to_score_gradient(p, delta, over=pair, scale=problem.score_scale)
    d_k.add_product(d_s.T, q, over=pair)


SCHEDULE = Schedule(
    name="one_pass_rows_kept",
    title="One pass, five products, rows kept in the room left over",
    direction="backward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
)
