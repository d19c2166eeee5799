"""Backward as automatic differentiation does it: P was saved by the forward, dP and dS pass through slow memory.

    dV = P^T dO               gather product by key
    dP = dO V^T               score product, stores E words
    dS = s P (dP - D)         one row at a time, D on the way: loads P and dP, stores dS; loads both twice if a row
    of each does not fit dQ = dS K, dK = dS^T Q    gather products
It starts from E words of P that the forward left in slow memory, and needs E words of scratch beside them.
Source: Dao et al. 2022, FlashAttention, algorithm 3.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts.gradients import gather, gather_part
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import (
    GatherNeeds,
    GatherTiles,
    ScoreNeeds,
    ScoreTiles,
    least_for_gather,
    least_for_scores,
    plan_gather,
    plan_scores,
    score_loads,
    score_peak,
    score_tiles,
)
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import slice_of
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """Each pass by itself gets the whole fast memory."""
    w = problem.widths
    dp_needs, v_needs, k_needs = _needs(problem)
    dp = plan_scores(problem, fast_words, dp_needs)
    dv = plan_gather(problem, problem.key_blocks, fast_words, v_needs)
    dk = plan_gather(problem, problem.key_blocks, fast_words, k_needs)
    dq = plan_gather(problem, problem.query_blocks, fast_words, k_needs)
    piece = (fast_words - w.statistic) // (2 * w.scratch)
    if dp is None or dv is None or dk is None or dq is None or piece < 1:
        needed = (least_for_scores(problem, dp_needs), least_for_gather(problem, v_needs))
        least = max(*needed, least_for_gather(problem, k_needs), w.statistic + 2 * w.scratch)
        raise FastMemoryTooSmallError("autograd_backward", got=fast_words, least_words=least)
    flat = {"rows": dp.rows, "keys": dp.keys, "panel": dp.panel, "softmax_keys": min(piece, problem.longest_row)}
    for name, tile in (("dv", dv), ("dq", dq), ("dk", dk)):
        flat |= {f"{name}_length": tile.length, f"{name}_dim": tile.width}
    return flat


def _needs(problem: Problem) -> tuple[ScoreNeeds, GatherNeeds, GatherNeeds]:
    return (
        ScoreNeeds(dim=problem.value_dim),
        GatherNeeds(dim=problem.value_dim),
        GatherNeeds(dim=problem.key_dim),
    )


def _cuts(tiles: Tiles) -> tuple[ScoreTiles, dict[str, GatherTiles]]:
    gathered = {
        f"d{name.upper()}": GatherTiles(length=tiles[f"d{name}_length"], width=tiles[f"d{name}_dim"]) for name in "vqk"
    }
    return ScoreTiles(rows=tiles["rows"], keys=tiles["keys"], panel=tiles["panel"]), gathered


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, pairs, piece = problem.widths, problem.pairs, tiles["softmax_keys"]
    dp, gathered = _cuts(tiles)
    dp_needs, v_needs, k_needs = _needs(problem)
    reread = int(problem.row_lengths[problem.row_lengths > piece].sum())
    form_dp = Part(
        loads=score_loads(problem, dp, dp_needs),
        stores=pairs * w.scratch,
        peak=score_peak(problem, dp, dp_needs),
        multiply_adds=pairs * problem.value_dim,
    )
    form_ds = Part(
        loads=2 * (pairs + reread) * w.scratch,
        stores=pairs * w.scratch,
        peak=2 * piece * w.scratch + w.statistic,
        multiply_adds=pairs,
    )
    return joined(
        gather_part(problem, gathered["dV"], v_needs, out="keys", visits=problem.k1, rounds=1),
        form_dp,
        form_ds,
        gather_part(problem, gathered["dQ"], k_needs, out="queries", visits=problem.q1, rounds=1),
        gather_part(problem, gathered["dK"], k_needs, out="keys", visits=problem.k1, rounds=1),
        scratch_words=pairs * w.scratch,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO and P (n_q, n_k) -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    dp, gathered = _cuts(tiles)
    rows, keys = slice(0, problem.rows), slice(0, problem.key_tokens)
    machine.reserve("dS", (problem.rows, problem.key_tokens), role="scratch", scratch=problem.pairs)
    machine.reserve("dQ", (problem.rows, problem.key_dim))
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    for block in problem.query_blocks.cut(dp.rows):
        for _, pair, tile in score_tiles(machine, problem, dp, block, left="dO", right="V", scale=1.0):
            machine.store(tile, "dS", pair.rows, pair.keys, where=pair.mask)
    for row in range(problem.rows):
        _softmax_backward_row(machine, problem, slice(row, row + 1), tiles["softmax_keys"])
    for into, pairs, other in (("dV", "P", "dO"), ("dQ", "dS", "K"), ("dK", "dS", "Q")):
        started = Started(problem.rows if into == "dQ" else problem.key_tokens)
        gather(
            machine,
            problem,
            gathered[into],
            into=into,
            pairs=pairs,
            other=other,
            rows=rows,
            keys=keys,
            started=started,
        )
        fill_rows(machine, started.rest(), **{into: 0.0})


def _softmax_backward_row(machine: Machine, problem: Problem, row: slice, piece: int) -> None:
    """dS of one row; pieces of the row stay for the second pass only if there is one piece."""
    live = problem.tile(row, slice(0, problem.key_tokens))
    pieces = [slice_of(live.keys, start, start + piece) for start in range(0, live.width, piece)]
    with machine.statistics(1, name="D") as delta:
        for keys in pieces:
            with machine.load("P", row, keys) as p, machine.load("dS", row, keys) as d_s:
                delta.add_row_dots(p, d_s)
                if len(pieces) == 1:
                    d_s.to_score_gradient(p, delta, over=problem.whole_row(row, keys), scale=problem.score_scale)
                    machine.store(d_s, "dS", row, keys)
        if len(pieces) > 1:
            for keys in pieces:
                with machine.load("P", row, keys) as p, machine.load("dS", row, keys) as d_s:
                    d_s.to_score_gradient(p, delta, over=problem.whole_row(row, keys), scale=problem.score_scale)
                    machine.store(d_s, "dS", row, keys)


SCHEDULE = Schedule(
    name="autograd_backward",
    title="Automatic differentiation (P saved)",
    direction="backward",
    source="Dao et al. 2022, FlashAttention, algorithm 3",
    facts=Facts(forms_scores_once=True, materialises=True, starts_from="probabilities"),
    plan=plan,
    predict=predict,
    run=run,
)
