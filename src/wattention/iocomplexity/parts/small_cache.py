"""The small-cache forward as two phases over a panel of query rows; schedules choose the cuts and the panel.

Phase 1, score product with m and l resident: E = exp(S - m) with the running maximum m, stored with m for every row
of every tile ("maxima"); at the end of a row block L = m + log l is stored.
Phase 2, gather product: O = sum over key blocks of E V, relative to the running maximum of the block (a maximum that
rises rescales the sums), at the end times exp(m - L).

    words = d_k (touches of phase 1) + E (1 + h) + d_v (key touches(r2) + n) + n + statistics,  h = ceil(d_v / f)
    statistics: (1 + h) query touches(c) maxima and (1 + h) n of L

E and maxima are scratch of one panel: a panel of rho rows takes rho n words instead of n^2.
Source: the idea of Saha and Ye 2024 (arXiv 2402.07443), tiles and constants of this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

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
    shifted,
)
from wattention.iocomplexity.problem.attention import Problem


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Tiles of both phases, and the rows of a panel."""

    scores: ScoreTiles
    gather: GatherTiles
    panel_rows: int

    def as_tiles(self) -> dict[str, int]:
        """The flat form that schedules exchange."""
        return {
            "rows": self.scores.rows,
            "keys": self.scores.keys,
            "panel": self.scores.panel,
            "out_rows": self.gather.length,
            "out_dim": self.gather.width,
            "panel_rows": self.panel_rows,
        }


def cuts_of(tiles: Mapping[str, int]) -> Cuts:
    """The cuts behind flat tiles."""
    return Cuts(
        scores=ScoreTiles(rows=tiles["rows"], keys=tiles["keys"], panel=tiles["panel"]),
        gather=GatherTiles(length=tiles["out_rows"], width=tiles["out_dim"]),
        panel_rows=tiles["panel_rows"],
    )


def score_needs(problem: Problem, *, touches: int = 2) -> ScoreNeeds:
    """m and l of each row, the rescaling factor, and ``touches`` words of statistics per row of a tile."""
    w = problem.widths.statistic
    return ScoreNeeds(dim=problem.key_dim, row_words=2 * w, after_words=w, key_statistics=touches * w)


def gather_needs(problem: Problem, keys: int) -> GatherNeeds:
    """The running maximum of each row, and the next one beside it between key blocks of ``keys``."""
    w = problem.widths.statistic
    statistics = w * (problem.key_blocks.touches(keys) + problem.q1)
    return GatherNeeds(dim=problem.value_dim, row_words=w, after_words=w, block_words=statistics)


def plan_cuts(problem: Problem, fast_words: int) -> Cuts | None:
    """The best cut of each phase, with scratch for all rows; None when nothing fits."""
    scores = plan_scores(problem, fast_words, score_needs(problem))
    if scores is None:
        return None
    gather = plan_gather(problem, problem.query_blocks, fast_words, gather_needs(problem, scores.keys))
    return None if gather is None else Cuts(scores=scores, gather=gather, panel_rows=problem.rows)


def least_words(problem: Problem) -> int:
    """Words of fast memory that the smallest tiles need."""
    return max(least_for_scores(problem, score_needs(problem)), least_for_gather(problem, gather_needs(problem, 1)))


def panelled(problem: Problem, cuts: Cuts, *, most: int = 8) -> Cuts:
    """The panel that moves the fewest words among whole numbers of row blocks, up to ``most`` times the larger block.

    The blocks of phase 2 are equalised within the panel.
    """
    larger = max(cuts.scores.rows, cuts.gather.length)
    choices = range(cuts.scores.rows, min(most * larger, problem.rows + cuts.scores.rows) + 1, cuts.scores.rows)
    candidates = []
    for rows in choices:
        panel = min(rows, problem.rows)
        length = -(-panel // -(-panel // min(cuts.gather.length, panel)))
        candidates.append(replace(cuts, gather=replace(cuts.gather, length=length), panel_rows=panel))
    return min(candidates, key=lambda c: (count(problem, c).words, c.panel_rows))


def count(problem: Problem, cuts: Cuts) -> Count:
    """Exact count of both phases."""
    w, pairs = problem.widths, problem.pairs
    needs, after = score_needs(problem), gather_needs(problem, cuts.scores.keys)
    feature_panels = -(-problem.value_dim // cuts.gather.width)
    maxima = w.statistic * problem.key_blocks.touches(cuts.scores.keys)
    statistics_loads = feature_panels * after.block_words
    loads = score_loads(problem, cuts.scores, needs, panel_rows=cuts.panel_rows) + statistics_loads
    loads += gather_loads(problem, problem.query_blocks, cuts.gather, after, panel_rows=cuts.panel_rows)
    statistics_stores = maxima + w.statistic * problem.rows
    return Count(
        loads=loads,
        stores=pairs * w.scratch + problem.rows * problem.value_dim * w.inputs + statistics_stores,
        statistics_loads=statistics_loads,
        statistics_stores=statistics_stores,
        peak=max(score_peak(problem, cuts.scores, needs), gather_peak(problem, cuts.gather, after)),
        multiply_adds=pairs * (problem.key_dim + problem.value_dim),
        exponentials=pairs,
        scratch_words=_scratch_words(problem, cuts),
    )


def _scratch_words(problem: Problem, cuts: Cuts) -> int:
    w = problem.widths
    blocks = -(-problem.key_tokens // cuts.scores.keys)
    starts = np.arange(0, problem.rows, cuts.panel_rows)
    heights = np.minimum(cuts.panel_rows, problem.rows - starts)
    pairs = np.add.reduceat(problem.row_lengths, starts)
    return int((w.scratch * pairs + w.statistic * blocks * heights).max())


def run_panels(machine: Machine, problem: Problem, cuts: Cuts) -> None:
    """Both phases, panel by panel: Q, K, V -> O, L."""
    machine.reserve("O", (problem.rows, problem.value_dim))
    machine.reserve("L", (problem.rows, 1), role="statistics")
    for panel in problem.query_blocks.cut(cuts.panel_rows):
        height = panel.stop - panel.start
        blocks = -(-problem.key_tokens // cuts.scores.keys)
        pairs = int(problem.row_lengths[panel].sum())
        machine.reserve("E", (height, problem.key_tokens), role="scratch", scratch=pairs)
        machine.reserve("maxima", (height, blocks), role="statistics", scratch=height * blocks)
        for block in problem.query_blocks.cut(cuts.scores.rows, panel):
            _scores_of_block(machine, problem, cuts, block, panel.start)
        for block in problem.query_blocks.cut(cuts.gather.length, panel):
            for features in feature_blocks(problem.value_dim, cuts.gather.width):
                _output_of_block(machine, problem, cuts, block, features=features, start=panel.start)
        machine.discard("E")
        machine.discard("maxima")


def _scores_of_block(machine: Machine, problem: Problem, cuts: Cuts, block: slice, start: int) -> None:
    """Phase 1 of one block of rows."""
    height = block.stop - block.start
    with machine.maxima(height) as m, machine.statistics(height) as sums:
        tiles = score_tiles(machine, problem, cuts.scores, block, left="Q", right="K", scale=problem.score_scale)
        for number, pair, tile in tiles:
            own = locate(pair.rows, block)
            own_maxima, rows = m.part(rows=own), shifted(pair.rows, start)
            tile.online_softmax(own_maxima, sums.part(rows=own), over=pair)
            machine.store(tile, "E", rows, pair.keys, where=pair.mask)
            machine.store(own_maxima, "maxima", rows, slice(number, number + 1))
        sums.to_log_normaliser(m)
        machine.store(sums, "L", block)


def _output_of_block(
    machine: Machine, problem: Problem, cuts: Cuts, block: slice, *, features: slice, start: int
) -> None:
    """Phase 2 of one tile of the output."""
    height = block.stop - block.start
    value_name = value_source(problem)
    with machine.zeros(height, features.stop - features.start) as out:
        live = problem.tile(block, slice(0, problem.key_tokens))
        if live.pairs:
            with machine.maxima(height) as m:
                for number, keys in enumerate(problem.key_blocks.cut(cuts.scores.keys)):
                    pair = problem.tile(block, keys)
                    if pair.pairs:
                        own, rows = locate(pair.rows, block), shifted(pair.rows, start)
                        part = out.part(rows=own)
                        with machine.load("maxima", rows, slice(number, number + 1)) as new:
                            part.rebase(m.part(rows=own), new)
                        values = machine.slow(value_name, pair.keys, features)
                        part.add_product(machine.slow("E", rows, pair.keys), values, over=pair)
                own = locate(live.rows, block)
                with machine.load("L", live.rows) as log_normaliser:
                    out.part(rows=own).rebase(m.part(rows=own), log_normaliser)
        machine.store(out, "O", block, features)
