"""The matrix products inside attention, as blocks that schedules compose: what stays, what streams, what it costs.

Score product  S = A B^T on the unmasked pairs, A (n_q, d), B (n_k, d), one tile of r x c pairs at a time:
    mode C (tile stationary)   the tile is resident, columns of A and B stream         d (query touches(c) + key
    touches(r))
    mode A (panel stationary)  r rows of A are resident, words of B stream             d (q1 + key touches(r))
    A is better iff d < 2 sqrt(M), roughly. Mode B is mode A of the transposed problem.
Gather product  C = P B or C = P^T B, a tile of r x f sums is resident, columns of P and rows of B stream:
    h E + d touches(r),  h = ceil(d / f)

While two operands stream, the shorter of column and row is held, and one word of the other. Row statistics (m, l; L; D)
take ``row_words`` per row beside the tile.
Source: the output- and panel-stationary orders of Hong and Kung 1981 and Smith et al. 2017 (arXiv 1702.02017).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.selection import Selection
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.cuts import Blocks, PairTile, equalised_sizes

# --- score products ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScoreNeeds:
    """What a score product keeps beside its tile, in words."""

    dim: int
    row_words: int = 0
    """Statistics of each row."""
    after_words: int = 0
    """Temporaries of the work on the finished tile."""
    after_per_row: int = 0
    """The same, for each row of the tile."""
    key_statistics: int = 0
    """Words moved for each live row of each tile, e.g. tile maxima: they make wide tiles better."""


@dataclass(frozen=True, kw_only=True)
class ScoreTiles:
    """How a score product is cut: ``panel`` is 1 in mode A, 0 in mode C."""

    rows: int
    keys: int
    panel: int


def score_peak(problem: Problem, tiles: ScoreTiles, needs: ScoreNeeds) -> int:
    """Words in use when a full tile is formed and worked on."""
    return int(score_room(problem, tiles.rows, tiles.keys, tiles.panel, needs))


def score_room(problem: Problem, r: Any, c: Any, panel: int, needs: ScoreNeeds) -> Any:
    """The same for any r rows, c keys and mode, elementwise."""
    w_in, w_acc = problem.widths.inputs, problem.widths.accumulators
    after = needs.after_words + needs.after_per_row * r
    operands = w_in if panel else np.minimum(r, c) * w_in + w_in
    return r * c * w_acc + r * (needs.row_words + (needs.dim * w_in if panel else 0)) + np.maximum(operands, after)


def plan_scores(problem: Problem, fast_words: int, needs: ScoreNeeds) -> ScoreTiles | None:
    """The cut that moves the fewest words, or None when nothing fits."""
    best: tuple[int, ScoreTiles] | None = None
    w_in, w_acc = problem.widths.inputs, problem.widths.accumulators
    for panel in (0, 1):
        r, key_touches = problem.query_blocks.sizes, problem.query_blocks.table
        free = fast_words - r * (needs.row_words + (needs.dim * w_in if panel else 0))
        after = (free - needs.after_words - needs.after_per_row * r) // (r * w_acc)
        c = (free - w_in - (0 if panel else r * w_in)) // (r * w_acc)
        if not panel:
            c = np.maximum(c, np.minimum((free - w_in) // (r * w_acc + w_in), r))
        c = np.minimum(c, after)
        fits = c >= 1
        if not fits.any():
            continue
        r, key_touches = r[fits], key_touches[fits]
        c, row_touches = problem.key_blocks.best_of(c[fits])
        words = needs.dim * w_in * (key_touches + (problem.q1 if panel else row_touches))
        words = words + needs.key_statistics * row_touches
        at = int(np.argmin(words))
        if best is None or words[at] < best[0]:
            best = int(words[at]), ScoreTiles(rows=int(r[at]), keys=int(c[at]), panel=panel)
    return None if best is None else best[1]


def least_for_scores(problem: Problem, needs: ScoreNeeds) -> int:
    """Words of fast memory that one pair at a time needs."""
    return int(min(score_room(problem, 1, 1, panel, needs) for panel in (0, 1)))


def score_loads(problem: Problem, tiles: ScoreTiles, needs: ScoreNeeds, *, panel_rows: int | None = None) -> int:
    """Words of A and B that forming all tiles loads, when query blocks are cut within panels of ``panel_rows``."""
    touches = problem.query_blocks.touches(tiles.rows, panel_rows)
    rows = problem.q1 if tiles.panel else problem.key_blocks.touches(tiles.keys)
    return needs.dim * problem.widths.inputs * (rows + touches)


def score_tiles(
    machine: Machine, problem: Problem, tiles: ScoreTiles, block: slice, *, left: str, right: str, scale: float
) -> Iterator[tuple[int, PairTile, Tile]]:
    """Form the tiles of one block of query rows; yield the key block's number, the pairs and the tile of sums.

    The tile is freed when the next one is asked for, unless the caller has done so before.
    """
    live = problem.tile(block, slice(0, problem.key_tokens))
    if not live.pairs:
        return
    panel = machine.load(left, live.rows) if tiles.panel else None
    for number, keys in enumerate(problem.key_blocks.cut(tiles.keys)):
        pair = problem.tile(block, keys)
        if not pair.pairs:
            continue
        tile = machine.zeros(pair.height, pair.width, name="scores")
        rows = machine.slow(left, pair.rows) if panel is None else panel.part(rows=locate(pair.rows, live.rows))
        tile.add_product(rows, machine.slow(right, pair.keys).T, onto=pair, scale=scale)
        yield number, pair, tile
        if tile.is_live:
            tile.free()
    if panel is not None:
        panel.free()


# --- gather products --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GatherNeeds:
    """What a gather product keeps beside its tile, in words."""

    dim: int
    row_words: int = 0
    """Statistics of each row of the tile."""
    after_words: int = 0
    """For each row of the tile, temporaries of the work between products."""
    fixed_words: int = 0
    """Statistics beside the tile that do not grow with it."""
    block_words: int = 0
    """Words moved for each feature block beside P (statistics)."""


@dataclass(frozen=True, kw_only=True)
class GatherTiles:
    """The stationary tile of a gather product: ``length`` rows (or keys) by ``width`` features."""

    length: int
    width: int


def gather_peak(problem: Problem, tiles: GatherTiles, needs: GatherNeeds) -> int:
    """Words in use while a full tile grows."""
    return int(gather_room(problem, tiles.length, tiles.width, needs))


def gather_room(problem: Problem, r: Any, f: Any, needs: GatherNeeds) -> Any:
    """The same for any r rows and f features, elementwise."""
    w = problem.widths
    operands = np.minimum(r * w.scratch + w.inputs, f * w.inputs + w.scratch)
    resident = r * (f * w.accumulators + needs.row_words) + needs.fixed_words
    return resident + np.maximum(operands, r * needs.after_words)


def plan_gather(problem: Problem, blocks: Blocks, fast_words: int, needs: GatherNeeds) -> GatherTiles | None:
    """The tile that moves the fewest words, or None when nothing fits; ``blocks`` cut the rows of the result."""
    w, fast_words = problem.widths, fast_words - needs.fixed_words
    features = equalised_sizes(needs.dim)
    row = features * w.accumulators + needs.row_words
    length = np.maximum(
        (fast_words - w.inputs) // (row + w.scratch), (fast_words - w.scratch - features * w.inputs) // row
    )
    length = np.minimum(length, fast_words // (row + needs.after_words))
    fits = length >= 1
    if not fits.any():
        return None
    features = features[fits]
    length, touches = blocks.best_of(length[fits])
    words = -(-needs.dim // features) * (problem.pairs * w.scratch + needs.block_words) + needs.dim * w.inputs * touches
    at = int(np.argmin(words))
    return GatherTiles(length=int(length[at]), width=int(features[at]))


def least_for_gather(problem: Problem, needs: GatherNeeds) -> int:
    """Words of fast memory that one sum at a time needs."""
    return int(gather_room(problem, 1, 1, needs))


def gather_loads(
    problem: Problem, blocks: Blocks, tiles: GatherTiles, needs: GatherNeeds, *, panel_rows: int | None = None
) -> int:
    """Words of P and B that forming all of C loads, when its blocks are cut within panels of ``panel_rows``."""
    w = problem.widths
    touches = blocks.touches(tiles.length, panel_rows)
    return -(-needs.dim // tiles.width) * problem.pairs * w.scratch + needs.dim * w.inputs * touches


def feature_blocks(dim: int, width: int) -> list[slice]:
    """The feature blocks of ``width``; the last may be narrower."""
    return [slice(start, min(start + width, dim)) for start in range(0, dim, width)]


# --- places -----------------------------------------------------------------------------------------------------------


def locate(rows: Selection, among: Selection) -> Selection:
    """Positions of ``rows`` within the selection ``among`` that contains them."""
    if isinstance(among, slice):
        return shifted(rows, among.start)
    wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    return np.searchsorted(among, wanted)


def shifted(rows: Selection, start: int) -> Selection:
    """The same selection, counted from ``start``."""
    return slice(rows.start - start, rows.stop - start) if isinstance(rows, slice) else rows - start
