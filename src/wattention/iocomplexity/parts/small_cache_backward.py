"""The small-cache backward as five products, each with its own best tile, over a panel of query rows.

    1  P = exp(s Q K^T - L)     score product, L resident, stores P over E words
    2  dV = P^T dO              gather product by key
    3  dS = s P (dO V^T - D)    score product, D resident, P passes word by word and is overwritten by dS
    4  dQ = dS K                gather product by query
    5  dK = dS^T Q              gather product by key
    words about n^2 (2 T + 3 + 3 min over h of (h + d^2 / (h M))), T = min(d^2 / M, 2 d / sqrt(M)): 10 d / sqrt(M) +
    3 when d is large

Five n x n x d products: no more arithmetic than FlashAttention. P and dS share E words of scratch; with panels of
rho rows, rho n
words, and dK and dV are then read and written once more for every further panel.
Source: regime of Li et al. 2024 (arXiv 2410.09397, theorem 4.3); phases, tiles and constants of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wattention.iocomplexity.memory.counts import Count, Part, joined
from wattention.iocomplexity.memory.machine import Machine
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
    least_for_gather,
    least_for_scores,
    locate,
    plan_gather,
    plan_scores,
    score_loads,
    score_peak,
    score_tiles,
    shifted,
)
from wattention.iocomplexity.problem.attention import Problem


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Tiles of the pass for D and of the five products, and the rows of a panel."""

    delta: DeltaTiles
    p: ScoreTiles
    dp: ScoreTiles
    dv: GatherTiles
    dq: GatherTiles
    dk: GatherTiles
    panel_rows: int

    def as_tiles(self) -> dict[str, int]:
        """The flat form that schedules exchange."""
        flat = {"delta_rows": self.delta.rows, "delta_dim": self.delta.dim, "panel_rows": self.panel_rows}
        for name, score in (("p", self.p), ("dp", self.dp)):
            flat |= {f"{name}_rows": score.rows, f"{name}_keys": score.keys, f"{name}_panel": score.panel}
        for name, tile in (("dv", self.dv), ("dq", self.dq), ("dk", self.dk)):
            flat |= {f"{name}_length": tile.length, f"{name}_dim": tile.width}
        return flat


def cuts_of(tiles: Mapping[str, int]) -> Cuts:
    """The cuts behind flat tiles."""

    def score(name: str) -> ScoreTiles:
        return ScoreTiles(rows=tiles[f"{name}_rows"], keys=tiles[f"{name}_keys"], panel=tiles[f"{name}_panel"])

    def gathered(name: str) -> GatherTiles:
        return GatherTiles(length=tiles[f"{name}_length"], width=tiles[f"{name}_dim"])

    return Cuts(
        delta=DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]),
        p=score("p"),
        dp=score("dp"),
        dv=gathered("dv"),
        dq=gathered("dq"),
        dk=gathered("dk"),
        panel_rows=tiles["panel_rows"],
    )


def needs_of(problem: Problem) -> tuple[ScoreNeeds, ScoreNeeds, GatherNeeds, GatherNeeds]:
    """Of phases 1, 3, 2, and 4 and 5."""
    w = problem.widths
    return (
        ScoreNeeds(dim=problem.key_dim, row_words=w.statistic),
        ScoreNeeds(dim=problem.value_dim, row_words=w.statistic, after_words=w.scratch),
        GatherNeeds(dim=problem.value_dim),
        GatherNeeds(dim=problem.key_dim),
    )


def plan_cuts(problem: Problem, fast_words: int) -> Cuts | None:
    """The best cut of each phase, with scratch for all rows; None when nothing fits."""
    p_needs, dp_needs, v_needs, k_needs = needs_of(problem)
    delta = plan_delta(problem, fast_words)
    p, dp = plan_scores(problem, fast_words, p_needs), plan_scores(problem, fast_words, dp_needs)
    dv = plan_gather(problem, problem.key_blocks, fast_words, v_needs)
    dk = plan_gather(problem, problem.key_blocks, fast_words, k_needs)
    dq = plan_gather(problem, problem.query_blocks, fast_words, k_needs)
    if delta is None or p is None or dp is None or dv is None or dq is None or dk is None:
        return None
    return Cuts(delta=delta, p=p, dp=dp, dv=dv, dq=dq, dk=dk, panel_rows=problem.rows)


def least_words(problem: Problem) -> int:
    """Words of fast memory that the smallest tiles need."""
    p_needs, dp_needs, v_needs, k_needs = needs_of(problem)
    return max(
        least_for_delta(problem),
        least_for_scores(problem, p_needs),
        least_for_scores(problem, dp_needs),
        least_for_gather(problem, v_needs),
        least_for_gather(problem, k_needs),
    )


def count(problem: Problem, cuts: Cuts) -> Count:
    """Exact count."""
    w, pairs, panel_rows = problem.widths, problem.pairs, cuts.panel_rows
    p_needs, dp_needs, v_needs, k_needs = needs_of(problem)
    statistics = problem.q1 * w.statistic
    form_p = Part(
        loads=score_loads(problem, cuts.p, p_needs, panel_rows=panel_rows) + statistics,
        stores=pairs * w.scratch,
        statistics_loads=statistics,
        peak=score_peak(problem, cuts.p, p_needs),
        multiply_adds=pairs * problem.key_dim,
        exponentials=pairs,
    )
    form_ds = Part(
        loads=score_loads(problem, cuts.dp, dp_needs, panel_rows=panel_rows) + statistics + pairs * w.scratch,
        stores=pairs * w.scratch,
        statistics_loads=statistics,
        peak=score_peak(problem, cuts.dp, dp_needs),
        multiply_adds=pairs * problem.value_dim,
    )
    visits, rounds = problem.query_blocks.touches(panel_rows), -(-problem.rows // panel_rows)
    return joined(
        delta_part(problem, cuts.delta),
        form_p,
        gather_part(problem, cuts.dv, v_needs, out="keys", visits=visits, rounds=rounds),
        form_ds,
        gather_part(problem, cuts.dq, k_needs, out="queries", visits=problem.q1, rounds=1, panel_rows=panel_rows),
        gather_part(problem, cuts.dk, k_needs, out="keys", visits=visits, rounds=rounds),
        scratch_words=int(np.add.reduceat(problem.row_lengths, np.arange(0, problem.rows, panel_rows)).max())
        * w.scratch,
    )


def run_panels(machine: Machine, problem: Problem, cuts: Cuts) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    panels = problem.query_blocks.cut(cuts.panel_rows)
    role = "inputs" if len(panels) == 1 else "accumulators"
    make_delta(machine, problem, cuts.delta)
    machine.reserve("dQ", (problem.rows, problem.key_dim))
    machine.reserve("dK", (problem.key_tokens, problem.key_dim), role=role)
    machine.reserve("dV", (problem.key_tokens, problem.value_dim), role=role)
    started = {"dQ": Started(problem.rows), "dK": Started(problem.key_tokens), "dV": Started(problem.key_tokens)}
    for panel in panels:
        pairs = int(problem.row_lengths[panel].sum())
        machine.reserve("P", (panel.stop - panel.start, problem.key_tokens), role="scratch", scratch=pairs)
        for block in problem.query_blocks.cut(cuts.p.rows, panel):
            probabilities_of_block(machine, problem, cuts.p, block, panel.start)
        gather_panel(machine, problem, cuts.dv, into="dV", other="dO", panel=panel, started=started["dV"])
        for block in problem.query_blocks.cut(cuts.dp.rows, panel):
            score_gradients_of_block(machine, problem, cuts.dp, block, panel.start)
        gather_panel(machine, problem, cuts.dq, into="dQ", other="K", panel=panel, started=started["dQ"])
        gather_panel(machine, problem, cuts.dk, into="dK", other="Q", panel=panel, started=started["dK"])
        machine.discard("P")
    for name, written in started.items():
        fill_rows(machine, written.rest(), **{name: 0.0})


def gather_panel(
    machine: Machine, problem: Problem, tiles: GatherTiles, *, into: str, other: str, panel: slice, started: Started
) -> None:
    """One gather product over the pair words of a panel."""
    keys = slice(0, problem.key_tokens)
    gather(
        machine,
        problem,
        tiles,
        into=into,
        pairs="P",
        other=other,
        rows=panel,
        keys=keys,
        row_start=panel.start,
        started=started,
    )


def probabilities_of_block(machine: Machine, problem: Problem, tiles: ScoreTiles, block: slice, start: int) -> None:
    """Phase 1 of one block of rows."""
    live = problem.tile(block, slice(0, problem.key_tokens))
    if live.pairs:
        with machine.load("L", live.rows) as log_normaliser:
            for _, pair, p in score_tiles(
                machine, problem, tiles, block, left="Q", right="K", scale=problem.score_scale
            ):
                p.exp_minus(log_normaliser.part(rows=locate(pair.rows, live.rows)), over=pair)
                machine.store(p, "P", shifted(pair.rows, start), pair.keys, where=pair.mask)


def score_gradients_of_block(machine: Machine, problem: Problem, tiles: ScoreTiles, block: slice, start: int) -> None:
    """Phase 3 of one block of rows."""
    live = problem.tile(block, slice(0, problem.key_tokens))
    if live.pairs:
        with machine.load("D", live.rows) as delta:
            for _, pair, d_s in score_tiles(machine, problem, tiles, block, left="dO", right="V", scale=1.0):
                rows = shifted(pair.rows, start)
                own = delta.part(rows=locate(pair.rows, live.rows))
                words = machine.slow("P", rows, pair.keys)
                d_s.to_score_gradient(words, own, over=pair, scale=problem.score_scale)
                machine.store(d_s, "P", rows, pair.keys, where=pair.mask)
