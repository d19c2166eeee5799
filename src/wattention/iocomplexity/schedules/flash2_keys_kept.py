"""FlashAttention-2 order with keys kept: room that blocks of whole queries leave over holds keys and values for good.

The order of ``flash2`` pays 2 n d words for every block of queries, and the number of blocks T jumps: just below the
room for T blocks nearly a T-th of fast memory lies idle. Here it holds some keys, which are then loaded only once:

    r (d_k + d_v + 2 + c) + kept (d_k + d_v) + 1 <= M
    words = n_q d_k + (d_k + d_v) (kept + T (n_k - kept)) + n_q d_v + n_q
    just below M = 2 n d (T = 2) a sixth fewer words than flash2; never more, for with no key kept it is flash2.
Keys are kept where every query sees every key; under a mask the order is that of flash2.
To leading order keeping keys at the price of one more block never pays while M < 2 n d; from there on all keys stay.
Source: this project.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.slow import SlowView
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts import flash
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The block of rows and the kept keys that move the fewest words together, and the score columns left."""
    w, row, key = problem.widths, _row_words(problem), _key_words(problem)
    tiles = flash.plan_tiles(problem, fast_words)
    if tiles is None:
        raise FastMemoryTooSmallError("flash2_keys_kept", got=fast_words, least_words=flash.least_words(problem))
    if not problem.mask.is_dense:
        return tiles | {"kept": 0}
    sizes = problem.query_blocks.sizes
    left = fast_words - _buffer(problem) - sizes * (row + w.accumulators)
    sizes, left = sizes[left >= 0], left[left >= 0]
    kept = np.minimum(problem.key_tokens, left // key)
    streamed = kept + -(-problem.rows // sizes) * (problem.key_tokens - kept)
    at = int(np.argmin(streamed))
    rows, keys = int(sizes[at]), int(kept[at])
    columns = (fast_words - _buffer(problem) - keys * key - rows * row) // (rows * w.accumulators)
    return {"rows": rows, "kept": keys, "keys": min(columns, max(keys, problem.key_tokens - keys))}


def _buffer(problem: Problem) -> int:
    """One streamed word, or the rescaling factor of one row."""
    return max(problem.widths.inputs, problem.widths.statistic)


def _row_words(problem: Problem) -> int:
    """Words of one resident row without its scores: Q, O, m, l."""
    w = problem.widths
    return problem.key_dim * w.inputs + problem.value_dim * w.accumulators + 2 * w.statistic


def _key_words(problem: Problem) -> int:
    """Words of one kept key and its value."""
    return (problem.key_dim + problem.value_dim) * problem.widths.inputs


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    if not problem.mask.is_dense:
        return flash.count(problem, tiles)
    w = problem.widths
    blocks = -(-problem.rows // tiles["rows"])
    key_loads = tiles["kept"] + blocks * (problem.key_tokens - tiles["kept"])
    rows, kept = tiles["rows"], tiles["kept"]
    widest = [  # of the score tiles, with what is in fast memory beside them
        min(tiles["keys"], keys) * rows * w.accumulators + beside
        for keys, beside in ((kept, w.statistic), (problem.key_tokens - kept, _buffer(problem)))
        if keys
    ]
    return Count(
        loads=w.inputs * problem.rows * problem.key_dim + key_loads * _key_words(problem),
        stores=problem.rows * (problem.value_dim * w.inputs + w.statistic),
        statistics_loads=0,
        statistics_stores=problem.rows * w.statistic,
        peak=rows * _row_words(problem) + kept * _key_words(problem) + max(widest),
        multiply_adds=problem.pairs * (problem.key_dim + problem.value_dim),
        exponentials=problem.pairs,
        scratch_words=0,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    if not problem.mask.is_dense:
        flash.run_blocks(machine, problem, tiles)
        return
    machine.reserve("O", (problem.rows, problem.value_dim))
    machine.reserve("L", (problem.rows, 1), role="statistics")
    kept = slice(0, tiles["kept"])
    with machine.load("K", kept) as k, machine.load("V", kept) as v:
        for block in problem.query_blocks.cut(tiles["rows"]):
            height = block.stop - block.start
            with (
                machine.zeros(height, problem.value_dim) as out,
                machine.maxima(height) as m,
                machine.statistics(height) as sums,
            ):
                with machine.load("Q", block) as q:
                    state = (q, out, m, sums)
                    for keys in problem.key_blocks.cut(tiles["keys"], kept):
                        own = locate(keys, kept)
                        _absorb(machine, problem, problem.tile(block, keys), state, (k.part(own), v.part(own)))
                    for keys in problem.key_blocks.cut(tiles["keys"], slice(kept.stop, problem.key_tokens)):
                        streamed = (machine.slow("K", keys), machine.slow("V", keys))
                        _absorb(machine, problem, problem.tile(block, keys), state, streamed)
                out.divide_rows(sums)
                sums.to_log_normaliser(m)
                machine.store(out, "O", block)
                machine.store(sums, "L", block)


def _absorb(
    machine: Machine,
    problem: Problem,
    pair: PairTile,
    state: tuple[Tile, Tile, Tile, Tile],
    keys: tuple[Tile, Tile] | tuple[SlowView, SlowView],
) -> None:
    """Bring outputs, maxima and sums of the rows up to date with some keys, kept or streamed."""
    q, out, m, sums = state
    k, v = keys
    with machine.zeros(pair.height, pair.width, name="scores") as s:
        s.add_product(q, k.T, onto=pair, scale=problem.score_scale)
        s.online_softmax(m, sums, out, over=pair)
        out.add_product(s, v, over=pair)


def _refuses(problem: Problem) -> str | None:
    return "values lie inside the keys" if problem.values_in_keys else None


SCHEDULE = Schedule(
    name="flash2_keys_kept",
    title="FlashAttention-2 order, keys kept in the room left over",
    direction="forward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
    refuses=_refuses,
)
