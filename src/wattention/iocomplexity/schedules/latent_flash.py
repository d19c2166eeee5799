"""Flash order for absorbed multi-head latent attention, whose values are the first d_v features of the keys.

A block of r queries stays with its output; a few keys at a time are loaded once and serve as key and as value:
    r (d_k + d_v + 2 + c) + c d_k <= M,     words = n d_k + d_k key touches(r) + n d_v + n, about n^2 d_k (d_k + d_v)
    / M
Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1 (absorption); FlashAttention-2 (loop order).
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.products import locate
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def refuses(problem: Problem) -> str | None:
    """Only values inside the keys can be loaded with them."""
    return None if problem.values_in_keys else "values are an array of their own"


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The largest useful block of rows, and as many keys at a time as are left."""
    least = _room(problem, 1, 1)
    if fast_words < least:
        raise FastMemoryTooSmallError("latent_flash", got=fast_words, least_words=least)
    fixed = problem.key_dim * problem.widths.inputs + problem.widths.statistic
    rows = problem.query_blocks.best((fast_words - fixed) // (least - fixed))
    keys = (fast_words - _room(problem, rows, 0)) // (_room(problem, rows, 1) - _room(problem, rows, 0))
    return {"rows": rows, "keys": min(problem.key_tokens, keys)}


def _room(problem: Problem, rows: int, keys: int) -> int:
    """Words of a block: Q, O, m, l and scores of its rows, the keys, and the rescaling factor of a row."""
    w = problem.widths
    row = problem.key_dim * w.inputs + problem.value_dim * w.accumulators + 2 * w.statistic + keys * w.accumulators
    return rows * row + keys * problem.key_dim * w.inputs + w.statistic


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    touches = problem.query_blocks.touches(tiles["rows"])
    return Count(
        loads=w.inputs * d_k * (problem.q1 + touches),
        stores=problem.rows * (d_v * w.inputs + w.statistic),
        statistics_loads=0,
        statistics_stores=problem.rows * w.statistic,
        peak=_room(problem, tiles["rows"], tiles["keys"]),
        multiply_adds=problem.pairs * (d_k + d_v),
        exponentials=problem.pairs,
        scratch_words=0,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k) -> O (n_q, d_v), L (n_q, 1)."""
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
    """Some keys, loaded once, serve the scores and the output."""
    out, m, sums = state
    with machine.load("K", pair.keys) as k, machine.zeros(pair.height, pair.width, name="scores") as s:
        s.add_product(q, k.T, onto=pair, scale=problem.score_scale)
        s.online_softmax(m, sums, out, over=pair)
        out.add_product(s, k.part(columns=slice(0, problem.value_dim)), over=pair)


SCHEDULE = Schedule(
    name="latent_flash",
    title="Flash order, values inside keys",
    direction="forward",
    source="DeepSeek-V2 (arXiv 2405.04434), section 2.1; Dao 2023, FlashAttention-2, algorithm 1",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
    refuses=refuses,
)
