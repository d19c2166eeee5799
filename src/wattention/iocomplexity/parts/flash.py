"""FlashAttention-2 order, for schedules that use it on Q, K and V in slow memory: queries and outputs of a block stay.

Words of one block of r rows: Q (d_k), O (d_v), m, l and c columns of scores; one word of K or V at a time:
    r (d_k + d_v + 2 + c) + 1 <= M,     words = n d_k + (d_k + d_v) key touches(r) + n d_v + n
    about 4 n^2 d^2 / M + 2 n d: only r matters, so c is what is left over.
Source: Dao 2023, FlashAttention-2, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.layout import value_source
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile


def least_words(problem: Problem) -> int:
    """Words of fast memory that one row and one column need."""
    w = problem.widths
    return _row_words(problem) + w.accumulators + max(w.inputs, w.statistic)


def plan_tiles(problem: Problem, fast_words: int) -> dict[str, int] | None:
    """The largest useful block of rows, and as many score columns as are left; None when nothing fits."""
    w, row = problem.widths, _row_words(problem)
    room = fast_words - max(w.inputs, w.statistic)
    if fast_words < least_words(problem):
        return None
    rows = problem.query_blocks.best(room // (row + w.accumulators))
    return {"rows": rows, "keys": min(problem.key_tokens, (room // rows - row) // w.accumulators)}


def count(problem: Problem, tiles: Mapping[str, int]) -> Count:
    """Exact count."""
    w = problem.widths
    d_k, d_v = problem.key_dim, problem.value_dim
    touches = problem.query_blocks.touches(tiles["rows"])
    peak = tiles["rows"] * (_row_words(problem) + tiles["keys"] * w.accumulators) + max(w.inputs, w.statistic)
    return Count(
        loads=w.inputs * (problem.q1 * d_k + touches * (d_k + d_v)),
        stores=problem.rows * (d_v * w.inputs + w.statistic),
        statistics_loads=0,
        statistics_stores=problem.rows * w.statistic,
        peak=peak,
        multiply_adds=problem.pairs * (d_k + d_v),
        exponentials=problem.pairs,
        scratch_words=0,
    )


def run_blocks(machine: Machine, problem: Problem, tiles: Mapping[str, int]) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    machine.reserve("O", (problem.rows, problem.value_dim))
    machine.reserve("L", (problem.rows, 1), role="statistics")
    for block in problem.query_blocks.cut(tiles["rows"]):
        height = block.stop - block.start
        with (
            machine.zeros(height, problem.value_dim) as out,
            machine.maxima(height) as m,
            machine.statistics(height) as sums,
        ):
            live = problem.tile(block, slice(0, problem.key_tokens))
            if live.pairs:
                with machine.load("Q", live.rows) as q:
                    for keys in problem.key_blocks.cut(tiles["keys"]):
                        pair = problem.tile(block, keys)
                        if pair.pairs:
                            own = locate(pair.rows, block)
                            state = (out.part(rows=own), m.part(rows=own), sums.part(rows=own))
                            _absorb(machine, problem, pair, q.part(rows=locate(pair.rows, live.rows)), state)
            out.divide_rows(sums)
            sums.to_log_normaliser(m)
            machine.store(out, "O", block)
            machine.store(sums, "L", block)


def _absorb(machine: Machine, problem: Problem, pair: PairTile, q: Tile, state: tuple[Tile, Tile, Tile]) -> None:
    """Bring outputs, maxima and sums of the rows up to date with some keys."""
    out, m, sums = state
    value_name = value_source(problem)
    with machine.zeros(pair.height, pair.width, name="scores") as s:
        s.add_product(q, machine.slow("K", pair.keys).T, onto=pair, scale=problem.score_scale)
        s.online_softmax(m, sums, out, over=pair)
        out.add_product(s, machine.slow(value_name, pair.keys, slice(0, problem.value_dim)), over=pair)


def _row_words(problem: Problem) -> int:
    """Words of one resident row without its scores: Q, O, m, l."""
    w = problem.widths
    return problem.key_dim * w.inputs + problem.value_dim * w.accumulators + 2 * w.statistic
