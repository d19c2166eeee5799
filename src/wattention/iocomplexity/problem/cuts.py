"""Cuts of a problem: query rows or keys into equal blocks, and the pairs of one tile, trimmed to what takes part.

Masks enter the traffic of a schedule through the touches of its blocks and the pairs of its tiles, and through nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from wattention.iocomplexity.problem.masks import Bools, Ints, Mask

Side = Literal["queries", "keys"]

_DEAR_BYTES, _FEW_SIZES = 256, 64


class Blocks:
    """Cuts of one side of a problem into equal blocks, with the traffic each cut causes on the other side.

    Only equalised sizes are worth considering: with T blocks, size = ceil(n / T). There are at most 2 sqrt(n) of
    them. Where
    the mask has no closed form 64 of them have to do, and powers of two where unions are dear (many single pairs).

    Attributes:
        length: n, rows or keys cut.
        sizes: the equalised block sizes, ascending.
        touches: for each size, the sum over blocks of the distinct rows (keys) of the other side a block meets.
    """

    def __init__(self, pattern: Mask, side: Side) -> None:
        self.length = pattern.queries if side == "queries" else pattern.keys
        self._seen = pattern.keys_seen if side == "queries" else pattern.queries_seeing
        self.sizes = equalised_sizes(self.length)
        if pattern.union_bytes > _DEAR_BYTES:
            self.sizes = np.minimum(1 << np.arange(self.length.bit_length() + 1), self.length)
            self.sizes = np.unique(self.sizes)
        elif pattern.union_bytes and len(self.sizes) > _FEW_SIZES:
            few = np.geomspace(1, self.length, _FEW_SIZES).astype(np.int64)
            self.sizes = np.unique(self.sizes[np.searchsorted(self.sizes, few, side="right") - 1])
        self._dense_other = (pattern.keys if side == "queries" else pattern.queries) if pattern.is_dense else None
        self._all_touches = pattern.key_touches if side == "queries" else pattern.query_touches

    def touches(self, size: int, panel: int | None = None) -> int:
        """Sum over blocks of ``size`` of the distinct rows or keys of the other side that a block meets.

        With ``panel``, blocks are cut within panels of that size, and none crosses from one panel to the next.
        """
        if panel is not None and panel < self.length and panel % size:
            key = (size, panel)
            if key not in self._known:
                start = (np.arange(0, self.length, panel)[:, None] + np.arange(0, panel, size)[None, :]).ravel()
                start = start[start < self.length]
                self._known[key] = int(self._seen(start, np.append(start[1:], self.length)).sum())
            return self._known[key]
        if self._dense_other is not None:
            return -(-self.length // size) * self._dense_other
        if size not in self._known:
            start = np.arange(0, self.length, size)
            self._known[size] = int(self._seen(start, np.minimum(start + size, self.length)).sum())
        return self._known[size]

    @cached_property
    def table(self) -> Ints:
        """Touches of every equalised size."""
        if self._dense_other is not None:
            return np.asarray(-(-self.length // self.sizes) * self._dense_other)
        if self._closed_form is not None:
            return self._closed_form
        return np.array([self.touches(int(size)) for size in self.sizes], dtype=np.int64)

    @cached_property
    def _closed_form(self) -> Ints | None:
        """The table where the mask gives it without counting."""
        return self._all_touches(self.sizes)

    @cached_property
    def _known(self) -> dict[int | tuple[int, int], int]:
        """Touches by size, or by size and panel: those in closed form, and those counted so far."""
        return {} if self._closed_form is None else dict(zip(self.sizes.tolist(), self.table.tolist(), strict=True))

    @cached_property
    def _best(self) -> Ints:
        """Index of the best size up to each size: with a ragged mask a larger block may touch more, never take it."""
        best = np.minimum.accumulate(self.table)
        index = np.arange(len(self.sizes))
        return np.maximum.accumulate(np.where(self.table == best, index, 0))

    def best(self, limit: int) -> int:
        """The size of at most ``limit`` with the fewest touches."""
        return int(self.sizes[self._best[np.searchsorted(self.sizes, limit, side="right") - 1]])

    def best_of(self, limits: Ints) -> tuple[Ints, Ints]:
        """The best sizes of at most ``limits`` (each at least 1), and their touches."""
        index = self._best[np.searchsorted(self.sizes, limits, side="right") - 1]
        return self.sizes[index], self.table[index]

    def cut(self, size: int, within: slice | None = None) -> list[slice]:
        """The blocks of ``size`` of the whole side or of a part of it; the last may be shorter."""
        start, stop = (0, self.length) if within is None else (within.start, within.stop)
        return [slice(at, min(at + size, stop)) for at in range(start, stop, size)]


@lru_cache(maxsize=32)
def equalised_sizes(length: int) -> Ints:
    """The distinct values of ceil(length / T), ascending; read-only, since it is shared."""
    root = int(length**0.5) + 1
    few = -(-length // np.arange(1, root + 1))
    many = np.arange(1, root + 1)
    many = -(-length // -(-length // many))
    sizes = np.unique(np.concatenate([few, many]))
    sizes.flags.writeable = False
    return sizes


@dataclass(frozen=True, slots=True)
class PairTile:
    """The unmasked pairs of one tile, trimmed to its live rows and keys.

    Attributes:
        rows: the live query rows: a slice, or an index array when they are not neighbours.
        keys: the live keys, likewise.
        height: number of live rows.
        width: number of live keys.
        pairs: unmasked pairs.
        mask: boolean (height, width), or None when every pair of the trimmed tile is computed.
    """

    rows: slice | Ints
    keys: slice | Ints
    height: int
    width: int
    pairs: int
    mask: Bools | None

    @property
    def size(self) -> int:
        """Pairs of the trimmed tile, masked ones included."""
        return self.height * self.width

    @classmethod
    def cut(cls, pattern: Mask, rows: slice, keys: slice) -> PairTile:
        """Trim the tile ``rows`` x ``keys`` of a mask."""
        height, width = rows.stop - rows.start, keys.stop - keys.start
        pairs = pattern.pairs_in(rows, keys)
        if pairs == 0:
            return cls(slice(0, 0), slice(0, 0), 0, 0, 0, None)
        if pairs == height * width:
            return cls(rows, keys, height, width, pairs, None)
        mask = pattern.tile(rows, keys)
        live_rows, live_keys = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        trimmed = mask[np.ix_(live_rows, live_keys)]
        return cls(
            _compact(live_rows + rows.start),
            _compact(live_keys + keys.start),
            len(live_rows),
            len(live_keys),
            pairs,
            None if pairs == trimmed.size else trimmed,
        )


def _compact(index: Ints) -> slice | Ints:
    """A slice where the indices are neighbours, which NumPy reads without copying."""
    if index[-1] - index[0] + 1 == len(index):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index


def slice_of(selection: slice | Ints, start: int, stop: int) -> slice | Ints:
    """Entries start..stop-1 of a selection."""
    if isinstance(selection, slice):
        return slice(selection.start + start, min(selection.start + stop, selection.stop))
    return _compact(selection[start:stop])
