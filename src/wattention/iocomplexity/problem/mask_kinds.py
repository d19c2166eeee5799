"""Attention masks, as far as data movement cares: who sees whom, and how many words a blocked sweep must touch.

A schedule cuts queries into blocks of r rows and keys into blocks of c keys. With tiles trimmed to the rows and keys
that take part, every word count of this package needs three things of a mask only:

* E, the number of unmasked pairs;
* key touches(r) = sum over query blocks of the number of distinct keys the block sees (r -> how often keys are
streamed);
* query touches(c) = the same with the roles exchanged.

Dense, causal and window masks are bands and answer in closed form; all others are bit matrices of cells (a cell may
be a single pair or a whole block), whose unions are taken 8 pairs at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Mask(ABC):
    """Which of ``queries`` x ``keys`` pairs are computed."""

    def __init__(self, name: str, queries: int, keys: int) -> None:
        for what, size in (("query tokens of a mask", queries), ("key tokens of a mask", keys)):
            if size < 1:
                raise UserError(what, got=size, wanted="at least 1")
        self.name, self.queries, self.keys = name, queries, keys

    def __repr__(self) -> str:
        return f"<mask {self.name} {self.queries} x {self.keys}>"

    @abstractmethod
    def keys_seen(self, start: Ints, stop: Ints) -> Ints:
        """Distinct keys seen by the queries start..stop-1, for arrays of ranges."""

    @abstractmethod
    def queries_seeing(self, start: Ints, stop: Ints) -> Ints:
        """Distinct queries that see one of the keys start..stop-1, for arrays of ranges."""

    @abstractmethod
    def tile(self, queries: slice, keys: slice) -> Bools:
        """The mask of one tile, True where the pair is computed."""

    @abstractmethod
    def pairs_in(self, queries: slice, keys: slice) -> int:
        """Unmasked pairs of one tile."""

    @property
    @abstractmethod
    def query_degrees(self) -> Ints:
        """Keys seen by each query."""

    @abstractmethod
    def keys_of_rows_with_choice(self) -> int:
        """Distinct keys seen by the queries that see at least two keys."""

    @cached_property
    def pairs(self) -> int:
        """Unmasked pairs."""
        return int(self.query_degrees.sum())

    def key_touches(self, sizes: Ints) -> Ints | None:
        """For each size, keys seen summed over blocks of so many queries; None where there is no closed form."""
        del sizes
        return None

    def query_touches(self, sizes: Ints) -> Ints | None:
        """For each size, queries that see a key of a block, summed over blocks of so many keys; None likewise."""
        del sizes
        return None

    def repeated(self, times: int) -> Mask:
        """The mask with every query ``times`` times in a row."""
        return RepeatedQueries(self, times)

    @property
    def union_bytes(self) -> int:
        """Bytes that one union of rows reads and writes at least; 0 for masks that answer in closed form."""
        return 0

    @property
    def is_dense(self) -> bool:
        """Whether every query sees every key."""
        return self.pairs == self.queries * self.keys


class Band(Mask):
    """Query i sees keys i + offset - left .. i + offset + right, where offset = keys - queries aligns the last of both.

    Dense, causal (right = 0), sliding window (right = 0, left = W - 1) and two-sided windows are bands.
    """

    def __init__(self, name: str, queries: int, keys: int, *, left: int, right: int) -> None:
        super().__init__(name, queries, keys)
        self.left, self.right, self.offset = left, right, keys - queries

    def _low(self, query: Any) -> Any:
        return np.clip(query + self.offset - self.left, 0, self.keys)

    def _high(self, query: Any) -> Any:
        return np.clip(query + self.offset + self.right + 1, 0, self.keys)

    def keys_seen(self, start: Ints, stop: Ints) -> Ints:
        """Neighbouring queries see overlapping or adjacent keys, so a range of queries sees a range of keys."""
        return np.asarray(np.maximum(self._high(stop - 1) - self._low(start), 0))

    def queries_seeing(self, start: Ints, stop: Ints) -> Ints:
        """Query i sees a key of the range iff start - right <= i + offset < stop + left."""
        low = np.clip(start - self.right - self.offset, 0, self.queries)
        high = np.clip(stop + self.left - self.offset, 0, self.queries)
        return np.asarray(np.maximum(high - low, 0))

    def repeated(self, times: int) -> Mask:
        """A repeated band still answers in closed form."""
        return RepeatedBand(self, times)

    def key_touches(self, sizes: Ints, times: int = 1) -> Ints:
        """Sums of clipped arithmetic progressions: where the blocks' ranges of keys end, less where they begin.

        With every query ``times`` times in a row, block k + times begins ``size`` queries after block k: as many
        progressions.
        """
        blocks, first = -(-self.queries * times // sizes), np.arange(times)[:, None]
        start, stop = first * sizes // times, ((first + 1) * sizes - 1) // times + 1
        ends = _progression(stop + self.offset + self.right, sizes, -((first - blocks + 1) // times), self.keys)
        starts = _progression(start + self.offset - self.left, sizes, -((first - blocks) // times), self.keys)
        last = np.clip(self.queries + self.offset + self.right, 0, self.keys)
        return np.asarray(ends.sum(axis=0) + last - starts.sum(axis=0))

    def query_touches(self, sizes: Ints) -> Ints:
        """The same for blocks of keys and ranges of queries."""
        blocks = -(-self.keys // sizes)
        last = np.clip(self.keys + self.left - self.offset, 0, self.queries)
        ends = _progression(sizes + self.left - self.offset, sizes, blocks - 1, self.queries) + last
        starts = _progression(-self.right - self.offset + 0 * sizes, sizes, blocks, self.queries)
        return np.asarray(ends - starts)

    def tile(self, queries: slice, keys: slice) -> Bools:
        """The mask of one tile."""
        i = np.arange(queries.start, queries.stop)[:, None] + self.offset
        j = np.arange(keys.start, keys.stop)[None, :]
        return (j >= i - self.left) & (j <= i + self.right)

    def pairs_in(self, queries: slice, keys: slice) -> int:
        """Closed form: a sum of clipped arithmetic progressions, j <= i + right minus j < i - left."""
        rows, columns = queries.stop - queries.start, keys.stop - keys.start
        first = queries.start + self.offset - keys.start
        return _staircase(first + self.right + 1, rows, columns) - _staircase(first - self.left, rows, columns)

    @cached_property
    def query_degrees(self) -> Ints:
        """Keys seen by each query."""
        i = np.arange(self.queries)
        return np.asarray(np.maximum(self._high(i) - self._low(i), 0))

    def keys_of_rows_with_choice(self) -> int:
        """Queries with two keys or more are neighbours, so they see a range of keys."""
        rows = np.flatnonzero(self.query_degrees >= 2)
        return int(self.keys_seen(rows[:1], rows[-1:] + 1)[0]) if rows.size else 0


def _progression(first: Ints, step: Ints, terms: Ints, top: int) -> Ints:
    """Return sum over k < terms of clip(first + k step, 0, top), elementwise; step is at least 1."""
    begin = np.clip(-(first // step), 0, terms)
    end = np.clip(-((first - top) // step), 0, terms)
    climbing = np.maximum(end - begin, 0)
    sloping = climbing * first + step * climbing * (begin + end - 1) // 2
    return np.asarray(sloping + (terms - np.maximum(begin, end)) * top)


def _staircase(first: int, rows: int, columns: int) -> int:
    """Return sum over i < rows of clip(first + i, 0, columns)."""
    begin, end = max(0, -first), max(0, min(rows, columns - first))
    climbing = max(0, end - begin)
    full = rows - max(begin, end) if first + rows > columns else 0
    return climbing * (2 * (first + begin) + climbing - 1) // 2 + max(0, full) * columns


class CellMask(Mask):
    """A mask given by a boolean matrix of cells, each cell ``cell`` x ``cell`` pairs (the last ones may be cut off)."""

    def __init__(self, name: str, queries: int, keys: int, cells: Bools, *, cell: int = 1) -> None:
        super().__init__(name, queries, keys)
        wanted = (-(-queries // cell), -(-keys // cell))
        if cells.shape != wanted:
            raise UserError(
                "the mask does not fit the problem",
                got=f"a {cells.shape[0]} x {cells.shape[1]} matrix of cells",
                wanted=f"{wanted[0]} x {wanted[1]} cells of {cell} for {queries} queries and {keys} keys",
            )
        self.cells, self.cell = np.asarray(cells, dtype=np.bool_), cell
        self._by_query = _BitRows(self.cells, cell, keys)
        self._by_key = _BitRows(self.cells.T, cell, queries)

    def keys_seen(self, start: Ints, stop: Ints) -> Ints:
        """Size of the union of the rows of cells each range covers."""
        return self._by_query.union_sizes(start // self.cell, (stop - 1) // self.cell + 1)

    def queries_seeing(self, start: Ints, stop: Ints) -> Ints:
        """Size of the union of the columns of cells each range covers."""
        return self._by_key.union_sizes(start // self.cell, (stop - 1) // self.cell + 1)

    def tile(self, queries: slice, keys: slice) -> Bools:
        """The mask of one tile."""
        if self.cell == 1:
            return np.asarray(self.cells[queries, keys])
        i = np.arange(queries.start, queries.stop) // self.cell
        j = np.arange(keys.start, keys.stop) // self.cell
        return np.asarray(self.cells[np.ix_(i, j)])

    @property
    def union_bytes(self) -> int:
        """A bit for every cell of a row, or of a column."""
        return int(max(self.cells.shape)) // 8 + 1

    def pairs_in(self, queries: slice, keys: slice) -> int:
        """Unmasked pairs of one tile: heights of the row cells times cells times widths of the column cells."""
        if queries.stop <= queries.start or keys.stop <= keys.start:
            return 0
        if self.cell == 1:
            return int(np.count_nonzero(self.cells[queries, keys]))
        rows, heights = self._covered(queries)
        columns, widths = self._covered(keys)
        return int(np.einsum("i,ij,j", heights, self.cells[rows, columns], widths))

    def _covered(self, part: slice) -> tuple[slice, Ints]:
        """The cells a slice covers, and how much of each."""
        cells = slice(part.start // self.cell, (part.stop - 1) // self.cell + 1)
        edges = np.clip(np.arange(cells.start, cells.stop + 1) * self.cell, part.start, part.stop)
        return cells, np.diff(edges)

    @cached_property
    def query_degrees(self) -> Ints:
        """Keys seen by each query."""
        rows = np.arange(self.cells.shape[0])
        return np.repeat(self._by_query.union_sizes(rows, rows + 1), self.cell)[: self.queries]

    def keys_of_rows_with_choice(self) -> int:
        """Distinct keys seen by the queries that see at least two keys."""
        chosen = np.asarray(self.cells[self.query_degrees[:: self.cell] >= 2].any(axis=0, keepdims=True))
        return int(_BitRows(chosen, self.cell, self.keys).union_sizes(np.array([0]), np.array([1]))[0])


class _BitRows:
    """Rows of cells packed eight to a byte, so that the union of many rows is a bitwise or."""

    def __init__(self, cells: Bools, cell: int, length: int) -> None:
        bits = np.packbits(cells, axis=1)
        self._bits = np.concatenate([bits, np.zeros((1, bits.shape[1]), np.uint8)])
        self._cell, self._cut_off = cell, cell * cells.shape[1] - length
        self._last_byte, self._last_bit = (cells.shape[1] - 1) // 8, 7 - (cells.shape[1] - 1) % 8

    def union_sizes(self, start: Ints, stop: Ints) -> Ints:
        """Pairs a row of pairs has in the union of the rows of cells start..stop-1, for arrays of ranges.

        Neighbours of equal ranges, as blocks much smaller than a cell have them, are looked at once.
        """
        if len(start) <= 4 * len(self._bits):
            return self._union_sizes(start, stop)
        new = np.flatnonzero(np.append(True, (np.diff(start) != 0) | (np.diff(stop) != 0)))
        return np.repeat(self._union_sizes(start[new], stop[new]), np.diff(new, append=len(start)))

    def _union_sizes(self, start: Ints, stop: Ints) -> Ints:
        size, gapless = int(stop[0] - start[0]), np.array_equal(start[1:], stop[:-1])
        if gapless and np.array_equal(start, np.arange(len(start)) * size) and stop[-1] == len(self._bits) - 1:
            union = self._union_of_blocks(len(start), size)
        else:
            edges = np.stack([start, stop], axis=1).ravel()
            union = np.bitwise_or.reduceat(self._bits, edges, axis=0)[::2]
        ones = _ones(union).sum(axis=1, dtype=np.int64)
        last = (union[:, self._last_byte] >> self._last_bit) & 1
        return np.asarray(ones * self._cell - last.astype(np.int64) * self._cut_off)

    def _union_of_blocks(self, blocks: int, size: int) -> NDArray[np.uint8]:
        """Unions of equal blocks that cover all rows: the common case, and the fast one."""
        bits = self._bits[:-1]
        missing = blocks * size - len(bits)
        if missing:
            bits = np.concatenate([bits, np.zeros((missing, bits.shape[1]), np.uint8)])
        return np.asarray(np.bitwise_or.reduce(bits.reshape(blocks, size, -1), axis=1))


def _ones(bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits set in each byte."""
    return np.asarray(np.bitwise_count(bits) if hasattr(np, "bitwise_count") else _POPCOUNT[bits])


_POPCOUNT = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


class RepeatedQueries(Mask):
    """Each query ``times`` times in a row: the query heads of one key/value head, stacked query by query."""

    def __init__(self, mask: Mask, times: int) -> None:
        super().__init__(mask.name, mask.queries * times, mask.keys)
        self.mask, self.times = mask, times

    @property
    def union_bytes(self) -> int:
        """That of the mask repeated."""
        return self.mask.union_bytes

    def _range(self, queries: slice) -> slice:
        return slice(queries.start // self.times, (queries.stop - 1) // self.times + 1)

    def keys_seen(self, start: Ints, stop: Ints) -> Ints:
        """Distinct keys seen by the queries the ranges cover."""
        return self.mask.keys_seen(start // self.times, (stop - 1) // self.times + 1)

    def queries_seeing(self, start: Ints, stop: Ints) -> Ints:
        """Distinct query rows that see one of the keys."""
        return self.mask.queries_seeing(start, stop) * self.times

    def tile(self, queries: slice, keys: slice) -> Bools:
        """The mask of one tile."""
        covered = self._range(queries)
        skip = queries.start - covered.start * self.times
        rows = np.repeat(self.mask.tile(covered, keys), self.times, axis=0)
        return rows[skip : skip + queries.stop - queries.start]

    def pairs_in(self, queries: slice, keys: slice) -> int:
        """Whole repeated queries in closed form; the cut ones at both ends by themselves."""
        if queries.stop <= queries.start:
            return 0
        covered = self._range(queries)
        pairs = self.times * self.mask.pairs_in(covered, keys)
        before = queries.start - covered.start * self.times
        after = covered.stop * self.times - queries.stop
        if before:
            pairs -= before * self.mask.pairs_in(slice(covered.start, covered.start + 1), keys)
        if after:
            pairs -= after * self.mask.pairs_in(slice(covered.stop - 1, covered.stop), keys)
        return pairs

    @cached_property
    def query_degrees(self) -> Ints:
        """Keys seen by each query row."""
        return np.repeat(self.mask.query_degrees, self.times)

    def keys_of_rows_with_choice(self) -> int:
        """Repeating queries adds no key."""
        return self.mask.keys_of_rows_with_choice()


class RepeatedBand(RepeatedQueries):
    """A repeated band, which answers in closed form, too."""

    def __init__(self, mask: Band, times: int) -> None:
        super().__init__(mask, times)
        self._band = mask

    def key_touches(self, sizes: Ints) -> Ints:
        """Those of the band whose blocks may begin and end between the copies of a query."""
        return self._band.key_touches(sizes, self.times)

    def query_touches(self, sizes: Ints) -> Ints:
        """Every query seen counts as often as it is repeated."""
        return self.times * self._band.query_touches(sizes)
