"""Parts that backward schedules compose: the pass that makes D, the pass over resident keys, gather products.

Given dO, O and L:  D = row sums of dO o O,  P = exp(s Q K^T - L),  dP = dO V^T,  dS = s P o (dP - D),
    dV = P^T dO,  dK = dS^T Q,  dQ = dS K.
Source: Dao 2023, FlashAttention-2, algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from wattention.iocomplexity.memory.counts import Part
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import (
    GatherNeeds,
    GatherTiles,
    feature_blocks,
    gather_loads,
    gather_peak,
    locate,
    shifted,
)
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile, slice_of

# --- D ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DeltaTiles:
    """Rows and features of dO and O at a time."""

    rows: int
    dim: int


def plan_delta(problem: Problem, fast_words: int) -> DeltaTiles | None:
    """Whole rows if one fits, else pieces of a row; traffic is the same."""
    w = problem.widths
    dim = min(problem.value_dim, (fast_words - w.statistic) // (2 * w.inputs))
    if dim < 1:
        return None
    return DeltaTiles(rows=min(problem.rows, fast_words // (w.statistic + 2 * dim * w.inputs)), dim=dim)


def least_for_delta(problem: Problem) -> int:
    """Words of fast memory that D needs."""
    return problem.widths.statistic + 2 * problem.widths.inputs


def delta_part(problem: Problem, tiles: DeltaTiles) -> Part:
    """What making D costs; all of its traffic is for statistics."""
    w = problem.widths
    loads, stores = 2 * problem.q1 * problem.value_dim * w.inputs, problem.q1 * w.statistic
    return Part(
        loads=loads,
        stores=stores,
        statistics_loads=loads,
        statistics_stores=stores,
        peak=min(tiles.rows, max(problem.q1, 1)) * (w.statistic + 2 * tiles.dim * w.inputs),
        multiply_adds=problem.q1 * problem.value_dim,
    )


def make_delta(machine: Machine, problem: Problem, tiles: DeltaTiles) -> None:
    """D (n_q, 1) of the rows that see a key."""
    machine.reserve("D", (problem.rows, 1), role="statistics")
    live = np.flatnonzero(problem.row_lengths)
    with machine.as_statistics():
        for start in range(0, len(live), tiles.rows):
            rows = slice_of(live, start, start + tiles.rows)
            height = min(tiles.rows, len(live) - start)
            with machine.statistics(height, name="D") as delta:
                for features in feature_blocks(problem.value_dim, tiles.dim):
                    with machine.load("dO", rows, features) as d_out, machine.load("O", rows, features) as out:
                        delta.add_row_dots(d_out, out)
                machine.store(delta, "D", rows)


# --- the pass over resident keys --------------------------------------------------------------------------------------

QueryGradient = Literal["none", "read-write", "remote", "store dS"]


@dataclass(frozen=True, kw_only=True)
class KeyPassTiles:
    """Resident keys, and queries that stream at a time."""

    keys: int
    rows: int


def key_pass_room(problem: Problem, keys: int, rows: int) -> int:
    """Words in use: K, V, dK, dV; Q and dO of the streaming rows, their L or D, and two tiles of pairs."""
    w, dim = problem.widths, problem.key_dim + problem.value_dim
    return keys * dim * (w.inputs + w.accumulators) + rows * (2 * keys * w.accumulators + dim * w.inputs + w.statistic)


def plan_key_pass(problem: Problem, fast_words: int) -> KeyPassTiles | None:
    """The largest useful block of keys, and as many queries at a time as are left."""
    if fast_words < key_pass_room(problem, 1, 1):
        return None
    row = key_pass_room(problem, 0, 1)
    keys = problem.key_blocks.best((fast_words - row) // (key_pass_room(problem, 1, 1) - row))
    resident = key_pass_room(problem, keys, 0)
    rows = (fast_words - resident) // (key_pass_room(problem, keys, 1) - resident)
    return KeyPassTiles(keys=keys, rows=min(rows, problem.rows))


def key_pass_part(problem: Problem, tiles: KeyPassTiles, query_gradient: QueryGradient) -> Part:
    """What the pass costs, with whatever it does for dQ."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    touches = problem.key_blocks.touches(tiles.keys)
    loads = (problem.k1 + touches) * (d_k + d_v) * w.inputs + 2 * touches * w.statistic
    stores = problem.key_tokens * (d_k + d_v) * w.inputs
    products = 2 * (d_k + d_v)
    if query_gradient in ("read-write", "remote"):
        products += d_k
        stores += (touches + problem.rows - problem.q1) * d_k * w.accumulators
        loads += (touches - problem.q1) * d_k * w.accumulators if query_gradient == "read-write" else 0
    if query_gradient == "store dS":
        stores += problem.pairs * w.scratch
    return Part(
        loads=loads,
        stores=stores,
        statistics_loads=2 * touches * w.statistic,
        peak=key_pass_room(problem, tiles.keys, tiles.rows),
        multiply_adds=problem.pairs * products,
        exponentials=problem.pairs,
    )


def key_pass(
    machine: Machine,
    problem: Problem,
    tiles: KeyPassTiles,
    query_gradient: QueryGradient,
    *,
    panel: slice | None = None,
    started: Started | None = None,
) -> None:
    """dK and dV of the keys of a panel (all keys when None), and what is asked for dQ."""
    panel = slice(0, problem.key_tokens) if panel is None else panel
    work = _QueryWork(kind=query_gradient, started=started, panel_start=panel.start)
    for block in problem.key_blocks.cut(tiles.keys, panel):
        live = problem.tile(slice(0, problem.rows), block)
        seen = np.zeros(block.stop - block.start, np.bool_)
        if live.pairs:
            seen[locate(live.keys, block)] = True
            _key_block(machine, problem, tiles, block, work)
        fill_rows(machine, np.flatnonzero(~seen) + block.start, dK=0.0, dV=0.0)


@dataclass(frozen=True, kw_only=True)
class _QueryWork:
    """What the pass does for dQ, the rows of dQ that have been written, and the first key of dS."""

    kind: QueryGradient
    started: Started | None
    panel_start: int


def _key_block(
    machine: Machine,
    problem: Problem,
    tiles: KeyPassTiles,
    block: slice,
    work: _QueryWork,
) -> None:
    live = problem.tile(slice(0, problem.rows), block)
    with (
        machine.load("K", live.keys) as k,
        machine.load("V", live.keys) as v,
        machine.zeros(live.width, problem.key_dim, name="dK") as d_k,
        machine.zeros(live.width, problem.value_dim, name="dV") as d_v,
    ):
        for rows in problem.query_blocks.cut(tiles.rows):
            pair = problem.tile(rows, block)
            if pair.pairs:
                own = locate(pair.keys, live.keys)
                resident = (k.part(rows=own), v.part(rows=own), d_k.part(rows=own), d_v.part(rows=own))
                _visit_keys(machine, problem, pair, resident, work)
        machine.store(d_k, "dK", live.keys)
        machine.store(d_v, "dV", live.keys)


def _visit_keys(
    machine: Machine,
    problem: Problem,
    pair: PairTile,
    resident: tuple[Tile, Tile, Tile, Tile],
    work: _QueryWork,
) -> None:
    """Some rows of Q and dO meet the resident keys."""
    k, v, d_k, d_v = resident
    with (
        machine.load("Q", pair.rows) as q,
        machine.load("dO", pair.rows) as d_out,
        machine.zeros(pair.height, pair.width, name="dP") as d_s,
    ):
        with machine.zeros(pair.height, pair.width, name="P") as p:
            p.add_product(q, k.T, onto=pair, scale=problem.score_scale)
            with machine.load("L", pair.rows) as log_normaliser:
                p.exp_minus(log_normaliser, over=pair)
            d_v.add_product(p.T, d_out, over=pair)
            d_s.add_product(d_out, v.T, onto=pair)
            with machine.load("D", pair.rows) as delta:
                d_s.to_score_gradient(p, delta, over=pair, scale=problem.score_scale)
        d_k.add_product(d_s.T, q, over=pair)
        if work.kind == "store dS":
            machine.store(d_s, "dS", pair.rows, shifted(pair.keys, work.panel_start), where=pair.mask)
        elif work.kind != "none":
            assert work.started is not None
            fresh, remote = work.started.fresh(pair.rows), work.kind == "remote"
            machine.accumulate("dQ", pair.rows, slice(None), d_s, k, fresh=fresh, remote=remote, over=pair)


# --- gather products of gradients -------------------------------------------------------------------------------------


def gather_part(
    problem: Problem,
    tiles: GatherTiles,
    needs: GatherNeeds,
    *,
    out: Literal["queries", "keys"],
    visits: int,
    rounds: int,
    panel_rows: int | None = None,
) -> Part:
    """What C = P B (``out`` queries) or C = P^T B (keys) costs, with C visited in ``rounds`` panels.

    ``visits`` is the number of rows of C visited, over all panels. With one round C is written once, at the width of
    inputs; with more it is read again and grows at the width of accumulators.
    """
    w = problem.widths
    blocks = problem.query_blocks if out == "queries" else problem.key_blocks
    length, live = (problem.rows, problem.q1) if out == "queries" else (problem.key_tokens, problem.k1)
    width = w.inputs if rounds == 1 else w.accumulators
    return Part(
        loads=gather_loads(problem, blocks, tiles, needs, panel_rows=panel_rows) + (visits - live) * needs.dim * width,
        stores=(visits + length - live) * needs.dim * width,
        peak=gather_peak(problem, tiles, needs),
        multiply_adds=problem.pairs * needs.dim,
    )


def gather(
    machine: Machine,
    problem: Problem,
    tiles: GatherTiles,
    *,
    into: str,
    pairs: str,
    other: str,
    rows: slice,
    keys: slice,
    row_start: int = 0,
    key_start: int = 0,
    started: Started,
) -> None:
    """Add ``pairs`` @ ``other`` to dQ, or its transpose @ ``other`` to dK or dV, over a panel of the pairs.

    Args:
        machine: the machine.
        problem: the problem.
        tiles: the stationary tile.
        into: dQ, dK or dV.
        pairs: array of pair words, whose first row is query ``row_start`` and first column key ``key_start``.
        other: K for dQ, Q for dK, dO for dV.
        rows: query rows of the panel.
        keys: keys of the panel.
        row_start: see pairs.
        key_start: see pairs.
        started: rows of the sum that earlier panels have written.
    """
    by_query = into == "dQ"
    dim = problem.value_dim if into == "dV" else problem.key_dim
    blocks = problem.query_blocks.cut(tiles.length, rows) if by_query else problem.key_blocks.cut(tiles.length, keys)
    for block in blocks:
        live = problem.tile(block, keys) if by_query else problem.tile(rows, block)
        if not live.pairs:
            continue
        targets, others = (live.rows, live.keys) if by_query else (live.keys, live.rows)
        height = live.height if by_query else live.width
        fresh = started.fresh(targets)
        words = machine.slow(pairs, shifted(live.rows, row_start), shifted(live.keys, key_start))
        for features in feature_blocks(dim, tiles.width):
            width = features.stop - features.start
            if fresh.all():
                out = machine.zeros(height, width, name=into)
            else:
                old = np.broadcast_to(~fresh[:, None], (height, width))
                out = machine.load(into, targets, features, where=old)
            with out:
                out.add_product(words if by_query else words.T, machine.slow(other, others, features), over=live)
                machine.store(out, into, targets, features)
