"""One attention problem, as data movement sees it: how many tokens, how wide, which pairs, how wide a word.

Symbols of the bounds: n_q = ``rows``, n_k = ``key_tokens``, d_k, d_v; q1 / q2 = query rows that see at least one / two
keys; k1 / k2 = keys seen by any row / by a row of q2; E = ``choice_pairs``, the unmasked pairs in rows of q2 (a row
with one key has P = 1 and dS = 0, so its query is never needed).

Grouped-query attention is one problem per key/value head with g = heads / kv_heads times as many query rows; multi-head
attention and the batch are ``copies`` of it, whose words add.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from wattention.core.errors import UserError
from wattention.iocomplexity.masks import Bools, Ints, Mask, RepeatedQueries, parse_mask

Side = Literal["queries", "keys"]


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Words of memory one number takes, by its role, e.g. inputs 1 and accumulators 2 for bf16 with fp32 sums.

    Outputs are written at the width of inputs, sums that return to fast memory at the width of accumulators.
    """

    inputs: int = 1
    accumulators: int = 1
    scratch: int = 1
    statistics: int | None = None
    """Words of m, l, L, D and tile maxima; None: the width of accumulators, 0: they live elsewhere, for free."""

    @property
    def statistic(self) -> int:
        """Words of one statistic."""
        return self.accumulators if self.statistics is None else self.statistics

    def of(self, role: str) -> int:
        """Words of one number of a role: inputs, accumulators, scratch or statistics."""
        return self.statistic if role == "statistics" else int(getattr(self, role))

    def __post_init__(self) -> None:
        if self.statistics is not None and self.statistics < 0:
            raise UserError("width of statistics", got=self.statistics, wanted="at least 0 words")
        for role in ("inputs", "accumulators", "scratch"):
            if getattr(self, role) < 1:
                raise UserError(f"width of {role}", got=getattr(self, role), wanted="at least 1 word")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Attention of ``query_tokens`` queries over ``key_tokens`` keys, for ``heads`` heads and ``batch`` sequences.

    Args:
        query_tokens: query tokens of one sequence.
        key_tokens: key tokens of one sequence.
        key_dim: features of a query and of a key, d_k.
        value_dim: features of a value, d_v.
        mask: which pairs of one head are computed.
        heads: query heads.
        kv_heads: key/value heads; divides heads.
        batch: sequences.
        widths: words a number takes.
        values_in_keys: values are the first d_v features of the keys (absorbed multi-head latent attention).
        scale: factor of the scores; d_k ** -0.5 when None.

    Raises:
        UserError: a size below 1, heads that do not divide, a mask of another shape, values wider than the keys they
        lie in.
    """

    query_tokens: int
    key_tokens: int
    key_dim: int
    value_dim: int
    mask: Mask
    heads: int = 1
    kv_heads: int = 1
    batch: int = 1
    widths: Widths = field(default_factory=Widths)
    values_in_keys: bool = False
    scale: float | None = None

    def __post_init__(self) -> None:
        for name in ("query_tokens", "key_tokens", "key_dim", "value_dim", "heads", "kv_heads", "batch"):
            if getattr(self, name) < 1:
                raise UserError(
                    f"{name.replace('_', ' ')} of an attention problem", got=getattr(self, name), wanted="at least 1"
                )
        if self.heads % self.kv_heads:
            raise UserError(
                "key/value heads do not divide the query heads",
                got=f"{self.heads} heads, {self.kv_heads} key/value heads",
                wanted="heads that are a multiple of the key/value heads",
            )
        if (self.mask.queries, self.mask.keys) != (self.query_tokens, self.key_tokens):
            raise UserError(
                "the mask does not fit the problem",
                got=f"a mask of {self.mask.queries} queries and {self.mask.keys} keys",
                wanted=f"{self.query_tokens} queries and {self.key_tokens} keys",
            )
        if self.values_in_keys and self.value_dim > self.key_dim:
            raise UserError(
                "values that lie inside the keys cannot be wider than them",
                got=f"value dim {self.value_dim}, key dim {self.key_dim}",
                wanted=f"a value dim of at most {self.key_dim}",
            )

    @cached_property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @cached_property
    def rows(self) -> int:
        """Query rows of one copy, n_q: every query of every head of the group."""
        return self.query_tokens * self.group

    @cached_property
    def copies(self) -> int:
        """Independent copies of the problem; their words add."""
        return self.batch * self.kv_heads

    @cached_property
    def pattern(self) -> Mask:
        """The mask of one copy, with a row for every query row."""
        return self.mask if self.group == 1 else RepeatedQueries(self.mask, self.group)

    @cached_property
    def score_scale(self) -> float:
        """Factor of the scores."""
        return self.key_dim**-0.5 if self.scale is None else self.scale

    @cached_property
    def pairs(self) -> int:
        """Unmasked pairs of one copy."""
        return self.pattern.pairs

    @cached_property
    def choice_pairs(self) -> int:
        """E: unmasked pairs of one copy in rows with at least two of them."""
        return int(self.row_lengths[self.row_lengths >= 2].sum())

    @cached_property
    def single_key_rows(self) -> int:
        """Rows that see exactly one key."""
        return int(np.count_nonzero(self.row_lengths == 1))

    @cached_property
    def row_lengths(self) -> Ints:
        """Keys that each row sees."""
        return self.pattern.query_degrees

    @cached_property
    def longest_row(self) -> int:
        """The most keys a row sees."""
        return max(1, int(self.row_lengths.max()))

    @cached_property
    def q1(self) -> int:
        """Rows that see a key."""
        return int(np.count_nonzero(self.row_lengths))

    @cached_property
    def q2(self) -> int:
        """Rows that see at least two keys."""
        return int(np.count_nonzero(self.row_lengths >= 2))

    @cached_property
    def k1(self) -> int:
        """Keys seen by any row."""
        return int(self.pattern.keys_seen(np.array([0]), np.array([self.rows]))[0])

    @cached_property
    def k2(self) -> int:
        """Keys seen by a row that sees at least two."""
        return self.pattern.keys_of_rows_with_choice()

    @cached_property
    def query_blocks(self) -> Blocks:
        """Ways to cut the query rows, and the keys each way touches."""
        return Blocks(self.pattern, "queries")

    @cached_property
    def key_blocks(self) -> Blocks:
        """Ways to cut the keys, and the query rows each way touches."""
        return Blocks(self.pattern, "keys")

    def tile(self, rows: slice, keys: slice) -> PairTile:
        """The pairs of the tile ``rows`` x ``keys``, trimmed to the rows and keys that take part."""
        return PairTile.cut(self.pattern, rows, keys)

    def whole_row(self, row: slice, keys: slice | Ints) -> PairTile:
        """Keys of one row, all of them unmasked."""
        width = keys.stop - keys.start if isinstance(keys, slice) else len(keys)
        return PairTile(row, keys, 1, width, width, None)


def attention_problem(
    *,
    tokens: int,
    head_dim: int,
    value_dim: int | None = None,
    key_tokens: int | None = None,
    mask: str | Mask = "dense",
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
    widths: Widths | None = None,
    values_in_keys: bool = False,
) -> Problem:
    """Return a problem the way users state it; unsaid sizes are those of square multi-head attention.

    Raises:
        UserError: as :class:`Problem` and :func:`~wattention.iocomplexity.masks.parse_mask`.
    """
    keys = tokens if key_tokens is None else key_tokens
    return Problem(
        query_tokens=tokens,
        key_tokens=keys,
        key_dim=head_dim,
        value_dim=head_dim if value_dim is None else value_dim,
        mask=parse_mask(mask, tokens, keys) if isinstance(mask, str) else mask,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        batch=batch,
        widths=widths or Widths(),
        values_in_keys=values_in_keys,
    )


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
        self._closed_form = pattern.union_bytes == 0
        self._dense_other = (pattern.keys if side == "queries" else pattern.queries) if pattern.is_dense else None
        self._all_touches = pattern.key_touches if side == "queries" else pattern.query_touches
        self._known: dict[int | tuple[int, int], int] = {}

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
        in_closed_form = self._all_touches(self.sizes)
        if in_closed_form is not None:
            return in_closed_form
        counts = -(-self.length // self.sizes)
        if not self._closed_form:
            return np.array([self.touches(int(size)) for size in self.sizes], dtype=np.int64)
        first = np.cumsum(counts) - counts
        start = (np.arange(counts.sum()) - np.repeat(first, counts)) * np.repeat(self.sizes, counts)
        stop = np.minimum(start + np.repeat(self.sizes, counts), self.length)
        return np.asarray(np.add.reduceat(self._seen(start, stop), first))

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


def equalised_sizes(length: int) -> Ints:
    """The distinct values of ceil(length / T), ascending."""
    root = int(length**0.5) + 1
    few = -(-length // np.arange(1, root + 1))
    many = np.arange(1, root + 1)
    many = -(-length // -(-length // many))
    return np.unique(np.concatenate([few, many]))


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
