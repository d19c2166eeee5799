"""The matrix products inside attention, as blocks that schedules compose: what is resident, what streams, what it costs.

Score product  S = A B^T on the unmasked pairs, A (n_q, d), B (n_k, d), one tile of pairs at a time:
    mode C (tile stationary)   r x c pairs resident, columns of A and B stream      d (query touches(c) + key touches(r))
    mode A (panel stationary)  r rows of A resident, words of B stream              d (q1 + key touches(r))
    A is better iff d < 2 sqrt(M), roughly.
Gather product  C = P B (or C = P^T B), a tile of C stationary, columns of P and rows of B stream:
    h E + d touches(r),  h = ceil(d / width of the tile)

Every score product may keep ``row_words`` words per query row beside its tile (m, l; L; D).
Source: the output- and panel-stationary orders of Hong and Kung 1981 and Smith et al. 2017 (arXiv 1702.02017).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattention.iocomplexity.machine import Machine
from wattention.iocomplexity.masks import Ints
from wattention.iocomplexity.problem import Blocks, PairTile, Problem
from wattention.iocomplexity.tile import Tile


@dataclass(frozen=True, kw_only=True)
class ScoreTiles:
    """How a score product is cut: ``panel`` is 1 in mode A, 0 in mode C."""

    rows: int
    keys: int
    panel: int


def plan_scores(
    problem: Problem, fast_words: int, *, dim: int, row_words: int, key_statistics: int = 0
) -> ScoreTiles | None:
    """The cut that moves the fewest words, or None when nothing fits.

    Args:
        problem: the problem.
        fast_words: M.
        dim: length of the dot products.
        row_words: words kept per query row beside the tile.
        key_statistics: words moved per live row of every tile (tile maxima), so that wide tiles are preferred.
    """
    w_in, w_acc = problem.widths.inputs, problem.widths.accumulators
    rows, key_touches = problem.query_blocks.sizes, problem.query_blocks.table
    best: tuple[float, ScoreTiles] | None = None
    for panel in (0, 1):
        per_row = row_words + (dim * w_in if panel else w_in)
        per_key = rows * w_acc + (0 if panel else w_in)
        room = fast_words - rows * per_row - (w_in if panel else 0)
        fits = room >= per_key
        if not fits.any():
            continue
        r, touches = rows[fits], key_touches[fits]
        c, row_touches = problem.key_blocks.best_of(room[fits] // per_key[fits])
        words = dim * w_in * (touches + (problem.q1 if panel else row_touches)) + key_statistics * row_touches
        at = int(np.argmin(words))
        if best is None or words[at] < best[0]:
            best = float(words[at]), ScoreTiles(rows=int(r[at]), keys=int(c[at]), panel=panel)
    return None if best is None else best[1]


def least_for_scores(problem: Problem, *, dim: int, row_words: int) -> int:
    """Words of fast memory that one pair at a time needs."""
    w_in, w_acc = problem.widths.inputs, problem.widths.accumulators
    return w_acc + row_words + min(2, dim + 1) * w_in


def score_peak(problem: Problem, tiles: ScoreTiles, *, dim: int, row_words: int) -> int:
    """Words in use while a full tile is formed."""
    w_in, w_acc = problem.widths.inputs, problem.widths.accumulators
    r, c = tiles.rows, tiles.keys
    operands = (r * dim + 1) * w_in if tiles.panel else (r + c) * w_in
    return r * c * w_acc + r * row_words + operands


def score_loads(problem: Problem, tiles: ScoreTiles, *, dim: int) -> int:
    """Words that forming all tiles loads."""
    rows = problem.q1 if tiles.panel else problem.key_blocks.touches(tiles.keys)
    return dim * problem.widths.inputs * (rows + problem.query_blocks.touches(tiles.rows))


def score_tiles(
    machine: Machine, problem: Problem, tiles: ScoreTiles, block: slice, *, left: str, right: str, scale: float
) -> Iterator[tuple[int, PairTile, Tile]]:
    """Form the tiles of one block of query rows; yield the key block's number, the pairs and the tile of sums."""
    live = problem.tile(block, slice(0, problem.key_tokens))
    if not live.pairs:
        return
    panel = machine.load(left, live.rows) if tiles.panel else None
    for number, keys in enumerate(problem.key_blocks.cut(tiles.keys)):
        pair = problem.tile(block, keys)
        if not pair.pairs:
            continue
        with machine.zeros(pair.height, pair.width, name="scores") as tile:
            if panel is None:
                tile.add_product(
                    machine.slow(left, pair.rows), machine.slow(right, pair.keys).T, onto=pair, scale=scale
                )
            else:
                own = panel.part(rows=locate(pair.rows, live.rows))
                tile.add_product(own, machine.slow(right, pair.keys).T, onto=pair, scale=scale)
            yield number, pair, tile
    if panel is not None:
        panel.free()


def locate(rows: slice | Ints, among: slice | Ints) -> slice | Ints:
    """Positions of ``rows`` within the selection ``among`` that contains them."""
    if isinstance(among, slice):
        return (
            slice(rows.start - among.start, rows.stop - among.start) if isinstance(rows, slice) else rows - among.start
        )
    wanted = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
    return np.searchsorted(among, wanted)


# --- gather products ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GatherTiles:
    """The stationary tile of a gather product: ``length`` rows (or keys) by ``width`` features."""

    length: int
    width: int


def plan_gather(
    problem: Problem, blocks: Blocks, fast_words: int, *, dim: int, row_words: int, factor_words: int = 0
) -> GatherTiles | None:
    """The tile that moves the fewest words, or None when nothing fits.

    Args:
        problem: the problem.
        blocks: its query blocks for C = P B, its key blocks for C = P^T B.
        fast_words: M.
        dim: features of B and C.
        row_words: words kept per row of the tile beside it, including the streamed column of P.
        factor_words: words moved per feature block beside the pairs (statistics).
    """
    w_in, w_acc, w_scr = problem.widths.inputs, problem.widths.accumulators, problem.widths.scratch
    features = equal_widths(dim)
    room = fast_words - features * w_in
    limit = room // (features * w_acc + row_words)
    fits = limit >= 1
    if not fits.any():
        return None
    features = features[fits]
    length, touches = blocks.best_of(limit[fits])
    panels = -(-dim // features)
    words = panels * (problem.pairs * w_scr + factor_words) + dim * w_in * touches
    at = int(np.argmin(words))
    return GatherTiles(length=int(length[at]), width=int(features[at]))


def equal_widths(dim: int) -> Ints:
    """Widths of equal feature blocks."""
    return np.unique(-(-dim // np.arange(1, dim + 1)))


def gather_peak(problem: Problem, tiles: GatherTiles, *, row_words: int) -> int:
    """Words in use while a full tile grows."""
    w = problem.widths
    return tiles.length * (tiles.width * w.accumulators + row_words) + tiles.width * w.inputs


def gather_loads(problem: Problem, blocks: Blocks, tiles: GatherTiles, *, dim: int) -> int:
    """Words of P and B that forming all of C loads."""
    panels = -(-dim // tiles.width)
    w = problem.widths
    return panels * problem.pairs * w.scratch + dim * w.inputs * blocks.touches(tiles.length)


def feature_blocks(dim: int, width: int) -> list[slice]:
    """The feature blocks of ``width``; the last may be narrower."""
    return [slice(start, min(start + width, dim)) for start in range(0, dim, width)]
