"""Small-cache backward that starts from the scores its forward kept: E = exp(S - m) and the tile maxima m.

    2  dV = P^T dO              gather product by key, E scaled row by row with exp(m - L) as it arrives
    3  dS = s P (dO V^T - D)    score product; E passes word by word, is scaled, and is overwritten by dS
    4  dQ = dS K   5  dK = dS^T Q
    about n^2 (8 d / sqrt(M) + 2) for large d: one product fewer than the small-cache backward, but n^2 words stay in
    slow memory from
the forward to the backward. The maxima are those of key blocks of ``saved_keys``, the tiles of phase 3.
Source: this project.
"""

from __future__ import annotations

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.selection import Selection
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    delta_part,
    gather,
    gather_part,
    least_for_delta,
    make_delta,
    plan_delta,
)
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import (
    GatherNeeds,
    GatherTiles,
    ScoreNeeds,
    ScoreTiles,
    feature_blocks,
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
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The best cut of each phase."""
    score_needs, needs = _needs(problem)
    delta, scores = plan_delta(problem, fast_words), plan_scores(problem, fast_words, score_needs)
    dk = plan_gather(problem, problem.key_blocks, fast_words, needs)
    dq = plan_gather(problem, problem.query_blocks, fast_words, needs)
    dv = None if scores is None else _plan_values(problem, fast_words, scores.keys)
    if delta is None or scores is None or dv is None or dk is None or dq is None:
        least = max(
            least_for_delta(problem),
            least_for_scores(problem, score_needs),
            least_for_gather(problem, needs),
            _value_room(problem, 1, 1, 1),
        )
        raise FastMemoryTooSmallError("small_cache_backward_saved", got=fast_words, least_words=least)
    stat = problem.widths.statistic
    resident = dv.length * dv.width * problem.widths.accumulators
    alone = _value_room(problem, dv.length, dv.width, 0) - resident
    spare = fast_words - resident
    weight_rows = min(spare // (2 * stat), (spare - alone) // stat) if stat else problem.rows
    flat = {
        "delta_rows": delta.rows,
        "delta_dim": delta.dim,
        "rows": scores.rows,
        "saved_keys": scores.keys,
        "panel": scores.panel,
        "weight_rows": min(problem.rows, weight_rows),
    }
    for name, tile in (("dv", dv), ("dq", dq), ("dk", dk)):
        flat |= {f"{name}_length": tile.length, f"{name}_dim": tile.width}
    return flat


def _plan_values(problem: Problem, fast_words: int, saved_keys: int) -> GatherTiles | None:
    """The tile of dV that moves the fewest words among those that lie within one block of maxima."""
    w, best = problem.widths, None
    saved = min(saved_keys, problem.key_tokens)
    for width in sorted({-(-problem.value_dim // panels) for panels in range(1, problem.value_dim + 1)}):
        for length in (-(-saved // parts) for parts in range(1, saved + 1)):
            if _value_room(problem, length, width, 1) <= fast_words:
                touches = problem.key_blocks.touches(length, saved)
                panels = -(-problem.value_dim // width)
                per_panel = problem.pairs * w.scratch + 2 * touches * w.statistic
                words = panels * per_panel + problem.value_dim * w.inputs * touches
                if best is None or words < best[0]:
                    best = words, GatherTiles(length=length, width=width)
                break
    return None if best is None else best[1]


def _value_room(problem: Problem, length: int, width: int, weight_rows: int) -> int:
    """Words of phase 2: a tile of dV, the factors of some rows, and either L beside them or the operands."""
    w = problem.widths
    factors = weight_rows * w.statistic
    operands = min(length * w.scratch + w.inputs, width * w.inputs + w.scratch)
    return length * width * w.accumulators + factors + max(factors, operands)


def _needs(problem: Problem) -> tuple[ScoreNeeds, GatherNeeds]:
    """Of phase 3, and of phases 4 and 5; dO returns for every block of maxima, so narrow blocks cost more."""
    w = problem.widths
    scores = ScoreNeeds(
        dim=problem.value_dim,
        row_words=2 * w.statistic,
        after_words=w.scratch,
        after_per_row=w.statistic,
        key_statistics=w.statistic + problem.value_dim * w.inputs,
    )
    return scores, GatherNeeds(dim=problem.key_dim)


def _cuts(tiles: Tiles) -> tuple[DeltaTiles, ScoreTiles, dict[str, GatherTiles]]:
    gathered = {
        f"d{name.upper()}": GatherTiles(length=tiles[f"d{name}_length"], width=tiles[f"d{name}_dim"]) for name in "vqk"
    }
    scores = ScoreTiles(rows=tiles["rows"], keys=tiles["saved_keys"], panel=tiles["panel"])
    return DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]), scores, gathered


def _value_blocks(problem: Problem, tiles: Tiles, length: int) -> list[slice]:
    """Blocks of keys that lie within one block of maxima."""
    saved = problem.key_blocks.cut(tiles["saved_keys"])
    return [block for keys in saved for block in problem.key_blocks.cut(length, keys)]


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, pairs = problem.widths, problem.pairs
    delta, scores, gathered = _cuts(tiles)
    score_needs, needs = _needs(problem)
    dv = gathered["dV"]
    feature_panels = -(-problem.value_dim // dv.width)
    touches = problem.key_blocks.touches(dv.length, tiles["saved_keys"])
    factors = 2 * feature_panels * touches * w.statistic
    form_dv = Part(
        loads=feature_panels * pairs * w.scratch + problem.value_dim * touches * w.inputs + factors,
        stores=problem.key_tokens * problem.value_dim * w.inputs,
        statistics_loads=factors,
        peak=_value_room(problem, dv.length, dv.width, tiles["weight_rows"]),
        multiply_adds=pairs * problem.value_dim,
    )
    statistics = (2 * problem.q1 + problem.key_blocks.touches(scores.keys)) * w.statistic
    form_ds = Part(
        loads=score_loads(problem, scores, score_needs) + pairs * w.scratch + statistics,
        stores=pairs * w.scratch,
        statistics_loads=statistics,
        peak=score_peak(problem, scores, score_needs),
        multiply_adds=pairs * problem.value_dim,
    )
    return joined(
        delta_part(problem, delta),
        form_dv,
        form_ds,
        gather_part(problem, gathered["dQ"], needs, out="queries", visits=problem.q1, rounds=1),
        gather_part(problem, gathered["dK"], needs, out="keys", visits=problem.k1, rounds=1),
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q, K, V, dO, O, L, E (n_q, n_k) and maxima -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v); dS replaces E."""
    delta, scores, gathered = _cuts(tiles)
    rows, keys = slice(0, problem.rows), slice(0, problem.key_tokens)
    make_delta(machine, problem, delta)
    machine.reserve("dQ", (problem.rows, problem.key_dim))
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    started = {"dQ": Started(problem.rows), "dK": Started(problem.key_tokens), "dV": Started(problem.key_tokens)}
    for block in _value_blocks(problem, tiles, gathered["dV"].length):
        live = problem.tile(rows, block)
        if live.pairs:
            started["dV"].fresh(live.keys)
            for features in feature_blocks(problem.value_dim, gathered["dV"].width):
                with machine.zeros(live.width, features.stop - features.start, name="dV") as out:
                    _value_gradient(machine, problem, tiles, block=block, features=features, target=(out, live.keys))
                    machine.store(out, "dV", live.keys, features)
    for block in problem.query_blocks.cut(scores.rows):
        _score_gradients_of_block(machine, problem, scores, block)
    for into, other in (("dQ", "K"), ("dK", "Q")):
        gather(
            machine,
            problem,
            gathered[into],
            into=into,
            pairs="E",
            other=other,
            rows=rows,
            keys=keys,
            started=started[into],
        )
    for name, written in started.items():
        fill_rows(machine, written.rest(), **{name: 0.0})


def _value_gradient(
    machine: Machine,
    problem: Problem,
    tiles: Tiles,
    *,
    block: slice,
    features: slice,
    target: tuple[Tile, Selection],
) -> None:
    """Phase 2 of a block of keys, whose maxima are one column: rows arrive with their factors exp(m - L)."""
    out, live_keys = target
    number = block.start // tiles["saved_keys"]
    for rows in problem.query_blocks.cut(tiles["weight_rows"]):
        pair = problem.tile(rows, block)
        if pair.pairs:
            with machine.load("maxima", pair.rows, slice(number, number + 1)) as factors:
                with machine.load("L", pair.rows) as log_normaliser:
                    factors.exp_difference(log_normaliser)
                own = out.part(rows=locate(pair.keys, live_keys))
                words, others = machine.slow("E", pair.rows, pair.keys), machine.slow("dO", pair.rows, features)
                own.add_product(words.T, others, over=pair, weights=factors)


def _score_gradients_of_block(machine: Machine, problem: Problem, scores: ScoreTiles, block: slice) -> None:
    """Phase 3 of one block of rows."""
    live = problem.tile(block, slice(0, problem.key_tokens))
    if live.pairs:
        with machine.load("D", live.rows) as delta, machine.load("L", live.rows) as log_normaliser:
            for number, pair, d_s in score_tiles(machine, problem, scores, block, left="dO", right="V", scale=1.0):
                own, words = locate(pair.rows, live.rows), machine.slow("E", pair.rows, pair.keys)
                with machine.load("maxima", pair.rows, slice(number, number + 1)) as factors:
                    factors.exp_difference(log_normaliser.part(rows=own))
                    own_delta = delta.part(rows=own)
                    d_s.to_score_gradient(words, own_delta, over=pair, factors=factors, scale=problem.score_scale)
                machine.store(d_s, "E", pair.rows, pair.keys, where=pair.mask)


SCHEDULE = Schedule(
    name="small_cache_backward_saved",
    title="Small-cache backward (scores kept)",
    direction="backward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=True, starts_from="scores"),
    plan=plan,
    predict=predict,
    run=run,
)
