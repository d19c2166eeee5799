"""Two-pass backward, seven products: dK and dV with keys resident, then dQ with queries resident; no sum returns.

    pass A  c (2 d_k + 2 d_v + 2) + d_k + d_v + 1 <= M      n_k (d_k + d_v) + (d_k + d_v + 2) query touches(c),
    writes dK, dV
    pass B  r (2 d_k + d_v + 2 + 2 b) + b d_k + 1 <= M      n_q (d_k + d_v + 2) + (d_k + d_v) key touches(r), writes dQ
    about 14 n^2 d^2 / M: fewer words than five products, for 1.4 times the arithmetic; deterministic without atomics.
Source: the split of dQ from dK, dV in Triton and ROCm kernels; counts of this project.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    KeyPassTiles,
    delta_part,
    key_pass,
    key_pass_part,
    key_pass_room,
    least_for_delta,
    make_delta,
    plan_delta,
    plan_key_pass,
)
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The largest useful block in each pass."""
    delta, keys = plan_delta(problem, fast_words), plan_key_pass(problem, fast_words)
    if delta is None or keys is None or fast_words < _query_room(problem, 1, 1):
        least = max(least_for_delta(problem), key_pass_room(problem, 1, 1), _query_room(problem, 1, 1))
        raise FastMemoryTooSmallError("two_pass", got=fast_words, least_words=least)
    column = _query_room(problem, 0, 1)
    rows = problem.query_blocks.best((fast_words - column) // (_query_room(problem, 1, 1) - column))
    resident = _query_room(problem, rows, 0)
    step = (fast_words - resident) // (_query_room(problem, rows, 1) - resident)
    return {
        "delta_rows": delta.rows,
        "delta_dim": delta.dim,
        "keys": keys.keys,
        "rows": keys.rows,
        "dq_rows": rows,
        "dq_keys": min(step, problem.key_tokens),
    }


def _query_room(problem: Problem, rows: int, keys: int) -> int:
    """Words of pass B: Q, dO, dQ, L, D; a few keys of K, two tiles of pairs, and one word of V."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    row = (d_k + d_v) * w.inputs + d_k * w.accumulators + 2 * w.statistic
    return rows * (row + 2 * keys * w.accumulators) + keys * d_k * w.inputs + w.inputs


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    delta, keys = _cuts(tiles)
    return joined(delta_part(problem, delta), key_pass_part(problem, keys, "none"), _query_part(problem, tiles))


def _query_part(problem: Problem, tiles: Tiles) -> Part:
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    touches = problem.query_blocks.touches(tiles["dq_rows"])
    return Part(
        loads=(problem.q1 + touches) * (d_k + d_v) * w.inputs + 2 * problem.q1 * w.statistic,
        stores=problem.rows * d_k * w.inputs,
        statistics_loads=2 * problem.q1 * w.statistic,
        peak=_query_room(problem, tiles["dq_rows"], tiles["dq_keys"]),
        multiply_adds=problem.pairs * (2 * d_k + d_v),
        exponentials=problem.pairs,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    delta, keys = _cuts(tiles)
    make_delta(machine, problem, delta)
    machine.reserve("dQ", (problem.rows, problem.key_dim))
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    key_pass(machine, problem, keys, "none")
    for block in problem.query_blocks.cut(tiles["dq_rows"]):
        with machine.zeros(block.stop - block.start, problem.key_dim, name="dQ") as d_q:
            live = problem.tile(block, slice(0, problem.key_tokens))
            if live.pairs:
                own = d_q.part(rows=locate(live.rows, block))
                _query_block(machine, problem, tiles, block, live=live, d_q=own)
            machine.store(d_q, "dQ", block)


def _query_block(machine: Machine, problem: Problem, tiles: Tiles, block: slice, *, live: PairTile, d_q: Tile) -> None:
    """Pass B of one block of queries; ``d_q`` are its live rows."""
    with (
        machine.load("Q", live.rows) as q,
        machine.load("dO", live.rows) as d_out,
        machine.load("L", live.rows) as log_normaliser,
        machine.load("D", live.rows) as delta,
    ):
        for keys in problem.key_blocks.cut(tiles["dq_keys"]):
            pair = problem.tile(block, keys)
            if pair.pairs:
                own = locate(pair.rows, live.rows)
                with (
                    machine.load("K", pair.keys) as k,
                    machine.zeros(pair.height, pair.width, name="P") as p,
                    machine.zeros(pair.height, pair.width, name="dP") as d_s,
                ):
                    p.add_product(q.part(rows=own), k.T, onto=pair, scale=problem.score_scale)
                    p.exp_minus(log_normaliser.part(rows=own), over=pair)
                    d_s.add_product(d_out.part(rows=own), machine.slow("V", pair.keys).T, onto=pair)
                    d_s.to_score_gradient(p, delta.part(rows=own), over=pair, scale=problem.score_scale)
                    d_q.part(rows=own).add_product(d_s, k, over=pair)


def _cuts(tiles: Tiles) -> tuple[DeltaTiles, KeyPassTiles]:
    return (
        DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]),
        KeyPassTiles(keys=tiles["keys"], rows=tiles["rows"]),
    )


SCHEDULE = Schedule(
    name="two_pass",
    title="Two passes, seven products",
    direction="backward",
    source="the split of dQ from dK and dV in Triton and ROCm kernels",
    facts=Facts(forms_scores_once=False, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
)
