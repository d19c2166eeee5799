"""Standard attention: scores, probabilities and output are three passes, with S and P in slow memory in between.

    S = Q K^T                 score product, stores E
    P = softmax(S)            one row at a time: loads E, stores E if a row fits into fast memory, else loads it twice
    O = P V                   gather product
Slow memory beside inputs and outputs: 2 E words (S and P).
Source: Dao et al. 2022, FlashAttention, algorithm 0.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts.layout import value_source
from wattention.iocomplexity.parts.products import (
    GatherNeeds,
    GatherTiles,
    ScoreNeeds,
    ScoreTiles,
    feature_blocks,
    gather_loads,
    gather_peak,
    least_for_gather,
    least_for_scores,
    locate,
    plan_gather,
    plan_scores,
    score_loads,
    score_peak,
    score_tiles,
)
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import slice_of
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_shared_values,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """Each pass by itself gets the whole fast memory."""
    scores = plan_scores(problem, fast_words, _score_needs(problem))
    gather = plan_gather(problem, problem.query_blocks, fast_words, _gather_needs(problem))
    w = problem.widths
    piece = (fast_words - 3 * w.statistic) // w.scratch
    if scores is None or gather is None or piece < 1:
        least = max(
            least_for_scores(problem, _score_needs(problem)),
            least_for_gather(problem, _gather_needs(problem)),
            3 * w.statistic + w.scratch,
        )
        raise FastMemoryTooSmallError("standard", got=fast_words, least_words=least)
    return {
        "rows": scores.rows,
        "keys": scores.keys,
        "panel": scores.panel,
        "softmax_keys": min(piece, problem.longest_row),
        "out_rows": gather.length,
        "out_dim": gather.width,
    }


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, pairs = problem.widths, problem.pairs
    score_cut, gather_cut = _cuts(tiles)
    needs, gather_needs = _score_needs(problem), _gather_needs(problem)
    rereads = int(problem.row_lengths[problem.row_lengths > tiles["softmax_keys"]].sum())
    loads = score_loads(problem, score_cut, needs) + (pairs + rereads) * w.scratch
    loads += gather_loads(problem, problem.query_blocks, gather_cut, gather_needs)
    return Count(
        loads=loads,
        stores=2 * pairs * w.scratch + problem.rows * (problem.value_dim * w.inputs + w.statistic),
        statistics_loads=0,
        statistics_stores=problem.rows * w.statistic,
        peak=max(
            score_peak(problem, score_cut, needs),
            tiles["softmax_keys"] * w.scratch + 3 * w.statistic,
            gather_peak(problem, gather_cut, gather_needs),
        ),
        multiply_adds=pairs * (problem.key_dim + problem.value_dim),
        exponentials=pairs + rereads,
        scratch_words=2 * pairs * w.scratch,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    score_cut, gather_cut = _cuts(tiles)
    for name in ("S", "P"):
        machine.reserve(name, (problem.rows, problem.key_tokens), role="scratch", scratch=problem.pairs)
    machine.reserve("O", (problem.rows, problem.value_dim))
    machine.reserve("L", (problem.rows, 1), role="statistics")
    for block in problem.query_blocks.cut(score_cut.rows):
        for _, pair, tile in score_tiles(
            machine, problem, score_cut, block, left="Q", right="K", scale=problem.score_scale
        ):
            machine.store(tile, "S", pair.rows, pair.keys, where=pair.mask)
    for row in range(problem.rows):
        _softmax_row(machine, problem, slice(row, row + 1), tiles["softmax_keys"])
    value_name = value_source(problem)
    for block in problem.query_blocks.cut(gather_cut.length):
        live = problem.tile(block, slice(0, problem.key_tokens))
        for features in feature_blocks(problem.value_dim, gather_cut.width):
            with machine.zeros(block.stop - block.start, features.stop - features.start) as out:
                if live.pairs:
                    values = machine.slow(value_name, live.keys, features)
                    own = out.part(rows=locate(live.rows, block))
                    own.add_product(machine.slow("P", live.rows, live.keys), values, over=live)
                machine.store(out, "O", block, features)


def _softmax_row(machine: Machine, problem: Problem, row: slice, piece: int) -> None:
    """P = exp(S - L) of one row; pieces of the row are kept between the two passes only if there is one piece."""
    live = problem.tile(row, slice(0, problem.key_tokens))
    with machine.maxima(1) as m, machine.statistics(1) as sums:
        pieces = [slice_of(live.keys, start, start + piece) for start in range(0, live.width, piece)]
        for keys in pieces:
            pair = problem.whole_row(row, keys)
            with machine.load("S", row, keys) as s:
                s.online_softmax(m, sums, over=pair)
                if len(pieces) == 1:
                    s.divide_rows(sums)
                    machine.store(s, "P", row, keys)
        sums.to_log_normaliser(m)
        if len(pieces) > 1:
            for keys in pieces:
                with machine.load("S", row, keys) as s:
                    s.exp_minus(sums, over=problem.whole_row(row, keys))
                    machine.store(s, "P", row, keys)
        machine.store(sums, "L", row)


def _score_needs(problem: Problem) -> ScoreNeeds:
    return ScoreNeeds(dim=problem.key_dim)


def _gather_needs(problem: Problem) -> GatherNeeds:
    return GatherNeeds(dim=problem.value_dim)


def _cuts(tiles: Tiles) -> tuple[ScoreTiles, GatherTiles]:
    return (
        ScoreTiles(rows=tiles["rows"], keys=tiles["keys"], panel=tiles["panel"]),
        GatherTiles(length=tiles["out_rows"], width=tiles["out_dim"]),
    )


SCHEDULE = Schedule(
    name="standard",
    title="Standard (materialises S and P)",
    direction="forward",
    source="Dao et al. 2022, FlashAttention, algorithm 0",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
