"""Standard attention by blocks of rows: Q stays while scores are formed and spilled, O stays while they return.

    words = d_k (n + key touches(r)) + 2 E + d_v (key touches(r) + n) + statistics, about 2 n^2 d^2 / M + 2 n^2
It is the small-cache forward with both products panel stationary and whole rows of features: the best order for
d^2 / 4 < M < d^2, as mappers find, too. Scratch is r n words.
Source: this project; see :mod:`wattention.iocomplexity.parts.small_cache`.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts import small_cache
from wattention.iocomplexity.parts.products import GatherTiles, ScoreTiles, gather_room, score_room
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import (
    Facts,
    FastMemoryTooSmallError,
    Schedule,
    Tiles,
    supports_shared_values,
)


def plan(problem: Problem, fast_words: int) -> Tiles:
    """Rows and columns of scores that move the fewest words: more rows stream less, more columns store fewer maxima."""
    w, rows = problem.widths, problem.query_blocks.sizes
    needs, after = small_cache.score_needs(problem), small_cache.gather_needs(problem, 1)
    fits = gather_room(problem, rows, problem.value_dim, after) <= fast_words
    fits &= score_room(problem, rows, 1, 1, needs) <= fast_words
    if not fits.any():
        least = max(gather_room(problem, 1, problem.value_dim, after), score_room(problem, 1, 1, 1, needs))
        raise FastMemoryTooSmallError("row_spill", got=fast_words, least_words=int(least))
    rows, key_touches = rows[fits], problem.query_blocks.table[fits]
    spare = fast_words - score_room(problem, rows, 0, 1, needs)
    keys, row_touches = problem.key_blocks.best_of(spare // (rows * w.accumulators))
    words = (problem.key_dim + problem.value_dim) * w.inputs * key_touches + 2 * w.statistic * row_touches
    at = int(np.argmin(words))
    r = int(rows[at])
    return small_cache.Cuts(
        scores=ScoreTiles(rows=r, keys=int(keys[at]), panel=1),
        gather=GatherTiles(length=r, width=problem.value_dim),
        panel_rows=r,
    ).as_tiles()


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    return small_cache.count(problem, small_cache.cuts_of(tiles))


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v), L (n_q, 1)."""
    small_cache.run_panels(machine, problem, small_cache.cuts_of(tiles))


SCHEDULE = Schedule(
    name="row_spill",
    title="Row-stationary with spilled scores",
    direction="forward",
    source="this project",
    facts=Facts(forms_scores_once=True, materialises=True),
    plan=plan,
    predict=predict,
    run=run,
    refuses=supports_shared_values,
)
