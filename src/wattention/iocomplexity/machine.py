"""A two-level memory machine: M words of fast memory, unlimited slow memory, every word that crosses is counted.

The machine has no cache policy: a program loads tiles, computes on tiles, stores tiles, and pays one word per word
moved (Hong and Kung 1981). Honest counts come from four rules:

* slow memory is private and starts as NaN; reading a word that was never written is an error;
* numbers leave slow memory only as a :class:`~wattention.iocomplexity.tile.Tile`, whose words are charged until it
is freed;
* all arithmetic happens in place in tiles; a temporary is a tile too;
* a word may be several words wide (:class:`~wattention.iocomplexity.problem.Widths`), in fast memory as in traffic.

``Machine(..., numbers=False)`` counts the same program without computing (null mode).

Operands named by :meth:`Machine.slow` are streamed: they pass through a buffer of one word (one operand streamed) or
of one
column and one row (both streamed), which is a loop of loads, products and frees, done at once. With an observer
attached (address traces, lowering to a graph) the loop is executed literally, word by word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.iocomplexity import streaming
from wattention.iocomplexity.counts import Count
from wattention.iocomplexity.masks import Bools, Ints
from wattention.iocomplexity.observer import Observer, SlowArray
from wattention.iocomplexity.problem import PairTile, Widths
from wattention.iocomplexity.selection import Floats, Selection, SlowView, pick, put, resolve, span
from wattention.iocomplexity.streaming import Product, SlowSum
from wattention.iocomplexity.tile import Tile

ALL = slice(None)


class FastMemoryFullError(UserError):
    """A tile does not fit into what is left of fast memory."""


class UnwrittenReadError(UserError):
    """A word of slow memory was read before anything was written to it."""


class Machine:
    """Fast memory of ``fast_words`` words beside unlimited slow memory.

    Args:
        fast_words: M.
        widths: words one number takes, by role.
        numbers: False counts without computing.
        observer: sees every step, word by word.
    """

    def __init__(
        self, fast_words: int, *, widths: Widths | None = None, numbers: bool = True, observer: Observer | None = None
    ) -> None:
        if fast_words < 1:
            raise UserError("size of fast memory", got=fast_words, wanted="at least 1 word")
        self.fast_words, self.widths = fast_words, widths or Widths()
        self.numbers, self.observer = numbers, observer
        self.used = self.peak = 0
        self.loads = self.stores = self.statistics_loads = self.statistics_stores = 0
        self.multiply_adds = self.exponentials = 0
        self.scratch_words = self.scratch_peak = 0
        self._slow: dict[str, SlowArray] = {}
        self._live: dict[int, Tile] = {}
        self._all_is_statistics = False

    # --- slow memory --------------------------------------------------------------------------------------------------

    def place(self, name: str, values: Floats | tuple[int, int], *, role: str = "inputs") -> None:
        """Put an input into slow memory before the program starts; a shape is enough in null mode."""
        shape = values if isinstance(values, tuple) else values.shape
        self.reserve(name, shape, role=role)
        if self.numbers:
            assert not isinstance(values, tuple), f"numbers of {name} are missing"
            self._slow[name].values[...] = values  # type: ignore[index]

    def reserve(self, name: str, shape: tuple[int, int], *, role: str = "inputs", scratch: int = 0) -> None:
        """Make room in slow memory for an output, or for ``scratch`` numbers of scratch; its words are unwritten."""
        assert name not in self._slow, f"slow memory already holds {name}"
        values = np.full(shape, np.nan) if self.numbers else None
        width = self.widths.of(role)
        array = SlowArray(name, shape, role, width, scratch * width, values)
        self.scratch_words += scratch * width
        self.scratch_peak = max(self.scratch_peak, self.scratch_words)
        if self.observer is not None:
            array.tags = self.observer.placed(array)
        self._slow[name] = array

    def discard(self, name: str) -> None:
        """Forget an array of slow memory."""
        self.scratch_words -= self._slow.pop(name).scratch_words

    def result(self, name: str) -> Floats:
        """Return a copy of an array of slow memory, for checking after the run."""
        values = self._slow[name].values
        assert values is not None, "null mode has no numbers"
        return values.copy()

    def names(self) -> set[str]:
        """Names of the arrays in slow memory."""
        return set(self._slow)

    def slow(self, name: str, rows: Selection = ALL, columns: Selection = ALL) -> SlowView:
        """Name a part of slow memory as an operand to be streamed."""
        shape = self._slow[name].shape
        return SlowView(name, resolve(rows, shape[0]), resolve(columns, shape[1]))

    # --- traffic ------------------------------------------------------------------------------------------------------

    def load(
        self,
        name: str,
        rows: Selection = ALL,
        columns: Selection = ALL,
        *,
        turned: bool = False,
        where: Bools | None = None,
        otherwise: float = 0.0,
    ) -> Tile:
        """Copy a part of slow memory to fast memory.

        Args:
            name: array of slow memory.
            rows: its rows.
            columns: its columns.
            turned: transpose on the way.
            where: words to copy; the others cost room only.
            otherwise: value of the words that are not copied.
        """
        array = self._slow[name]
        rows, columns = resolve(rows, array.shape[0]), resolve(columns, array.shape[1])
        shape = (span(rows), span(columns))
        tile = self._allocate(shape, array.width, name)
        self.count_traffic(name, loads=tile.size if where is None else int(np.count_nonzero(where)))
        if array.values is not None:
            values = self.read(name, rows, columns, where, otherwise)
            tile.values = values.T if turned else values
        if self.observer is not None:
            assert array.tags is not None
            tags = self.observer.loaded(pick(array.tags, rows, columns), where)
            tile.tags = tags.T if turned else tags
        if turned:
            tile.shape = shape[::-1]
        return tile

    def store(
        self,
        tile: Tile,
        name: str,
        rows: Selection = ALL,
        columns: Selection = ALL,
        *,
        where: Bools | None = None,
        add: bool = False,
    ) -> None:
        """Write a tile, or the words ``where`` selects, to slow memory; with ``add``, slow memory does the sum."""
        tile.must_be_live()
        array = self._slow[name]
        rows, columns = resolve(rows, array.shape[0]), resolve(columns, array.shape[1])
        assert tile.shape == (span(rows), span(columns)), f"a {tile.shape} tile does not fit {name}[{rows}, {columns}]"
        self.count_traffic(name, stores=tile.size if where is None else int(np.count_nonzero(where)))
        if array.values is not None:
            assert tile.values is not None
            new = tile.values + self.read(name, rows, columns) if add else tile.values
            self.write(name, rows, columns, new, where)
        if self.observer is not None:
            assert array.tags is not None
            assert tile.tags is not None
            home = pick(array.tags, rows, columns).copy()
            chosen = ALL if where is None else where
            home[chosen] = self.observer.stored(tile.tags[chosen], home[chosen])
            put(array.tags, rows, columns, home)

    def fill(self, name: str, rows: Ints, value: float) -> None:
        """Store a constant, made in one word of fast memory, into whole rows of an array."""
        array = self._slow[name]
        if self.observer is not None:
            with self._create((1, 1), array.role, name, value) as word:
                for row in rows:
                    for column in range(array.shape[1]):
                        self.store(word, name, slice(row, row + 1), slice(column, column + 1))
            return
        self.room_for(array.width, f"a word of {name}")
        self.count_traffic(name, stores=len(rows) * array.shape[1])
        if array.values is not None:
            array.values[rows] = value

    def zeros(self, height: int, width: int = 1, *, role: str = "accumulators", name: str = "sum") -> Tile:
        """Make a tile of zeros in fast memory; costs room, but no traffic."""
        return self._create((height, width), role, name, 0.0)

    def statistics(self, height: int, *, name: str = "statistics") -> Tile:
        """Make a column of statistics, zero at first."""
        return self._create((height, 1), "statistics", name, 0.0)

    def maxima(self, height: int, *, name: str = "maxima") -> Tile:
        """Make a column of running maxima, or of L: minus infinity, as no key was seen yet."""
        return self._create((height, 1), "statistics", name, -np.inf)

    def _create(self, shape: tuple[int, int], role: str, name: str, value: float) -> Tile:
        tile = self._allocate(shape, self.widths.of(role), name)
        if self.numbers:
            tile.values = np.full(shape, value)
        if self.observer is not None:
            tile.tags = self.observer.created(shape, role)
        return tile

    def add_product(
        self,
        into: Tile,
        left: Tile | SlowView,
        right: Tile | SlowView,
        *,
        onto: PairTile | None,
        over: PairTile | None,
        scale: float,
        weights: Tile | None = None,
    ) -> None:
        """Add a product to a tile; see :meth:`Tile.add_product`."""
        product = Product(left=left, right=right, scale=scale, onto=onto, over=over, weights=weights)
        fits = into.shape == (left.shape[0], right.shape[1]) and left.shape[1] == right.shape[0]
        assert fits, f"{left.shape} @ {right.shape} -> {into.shape}"
        _must_be_live(into, left, right, weights)
        self.multiply_adds += product.multiply_adds
        streaming.add_product(self, into, product)

    def accumulate(
        self,
        name: str,
        rows: Selection,
        columns: Selection,
        left: Tile,
        right: Tile | SlowView,
        *,
        fresh: bool | Bools = False,
        decay: Tile | None = None,
        remote: bool = False,
        over: PairTile | None = None,
        scale: float = 1.0,
    ) -> None:
        """Replace a part of slow memory by decay * old + scale * left @ right, one word of the sum at a time.

        A column of a streamed ``right`` is loaded, serves all rows, and is freed; a word of the sum is loaded
        (unless its row is ``fresh``), updated and stored.

        Args:
            name: array of slow memory that holds the sum.
            rows: rows of the sum.
            columns: columns of the sum.
            left: (rows, k) tile.
            right: (k, columns) tile or streamed operand.
            fresh: rows whose sum starts now, so that nothing is read.
            decay: (rows, 1) factors of the old sum.
            remote: let slow memory add what a store brings (an atomic add): no word is read.
            over: the pairs, when an operand is a pair tile.
            scale: factor of the product.
        """
        array = self._slow[name]
        rows, columns = resolve(rows, array.shape[0]), resolve(columns, array.shape[1])
        _must_be_live(left, right, decay)
        assert left.shape[0] == span(rows)
        assert right.shape == (left.shape[1], span(columns))
        starts = np.full(span(rows), fresh) if isinstance(fresh, bool) else fresh
        product = Product(left=left, right=right, scale=scale, onto=None, over=over)
        self.multiply_adds += product.multiply_adds
        target = SlowSum(name=name, rows=rows, columns=columns, fresh=starts, decay=decay, remote=remote)
        streaming.accumulate(self, target, product)

    def stream_score_gradient(
        self, tile: Tile, probabilities: SlowView, delta: Tile, *, factors: Tile | None, over: PairTile, scale: float
    ) -> None:
        """See :meth:`Tile.to_score_gradient`."""
        streaming.score_gradient(self, tile, probabilities, delta, factors=factors, over=over, scale=scale)

    # --- accounting ---------------------------------------------------------------------------------------------------

    @contextmanager
    def as_statistics(self) -> Iterator[None]:
        """Count all traffic inside as traffic for statistics (the pass over O and dO that makes D)."""
        self._all_is_statistics = True
        try:
            yield
        finally:
            self._all_is_statistics = False

    def count(self) -> Count:
        """What the program has cost so far."""
        return Count(
            loads=self.loads,
            stores=self.stores,
            statistics_loads=self.statistics_loads,
            statistics_stores=self.statistics_stores,
            peak=self.peak,
            multiply_adds=self.multiply_adds,
            exponentials=self.exponentials,
            scratch_words=self.scratch_peak,
        )

    def live(self) -> str:
        """What occupies fast memory, for messages."""
        return ", ".join(f"{t.name} {t.shape[0]}x{t.shape[1]}" for t in self._live.values()) or "nothing"

    def room_for(self, words: int, what: str) -> None:
        """Check that a temporary of ``words`` words fits for a moment, and remember the peak."""
        free = self.fast_words - self.used
        if words > free:
            raise FastMemoryFullError(
                f"fast memory is full: no room for {what}",
                got=f"{words} words needed, {free} free of {self.fast_words}; live: {self.live()}",
                wanted="tiles that fit together",
                do="plan smaller tiles, or give the machine more fast memory",
            )
        self.peak = max(self.peak, self.used + words)

    def is_live(self, tile: Tile) -> bool:
        """Whether a tile is in fast memory."""
        return id(tile) in self._live

    def free(self, tile: Tile) -> None:
        """Give the room of a tile back."""
        assert id(tile) in self._live, f"{tile.name} is freed twice, or is a view"
        del self._live[id(tile)]
        self.used -= tile.size * tile.width
        if self.observer is not None:
            assert tile.tags is not None
            self.observer.freed(tile.tags)

    def _allocate(self, shape: tuple[int, int], width: int, name: str) -> Tile:
        words = shape[0] * shape[1] * width
        self.room_for(words, f"{name} {shape[0]}x{shape[1]}")
        self.used += words
        tile = Tile(self, name, shape, width)
        self._live[id(tile)] = tile
        return tile

    # --- the machine's own side, for tile arithmetic ------------------------------------------------------------------

    def count_traffic(self, name: str, *, loads: int = 0, stores: int = 0) -> None:
        """Count numbers of an array that cross."""
        array = self._slow[name]
        loads, stores = loads * array.width, stores * array.width
        self.loads += loads
        self.stores += stores
        if array.role == "statistics" or self._all_is_statistics:
            self.statistics_loads += loads
            self.statistics_stores += stores

    def tags_of(self, name: str, rows: Selection, columns: Selection) -> NDArray[Any]:
        """The observer's tags of a part of slow memory."""
        tags = self._slow[name].tags
        assert tags is not None
        return pick(tags, rows, columns)

    def width_of(self, name: str) -> int:
        """Words a number of this array takes."""
        return self._slow[name].width

    def fresh_word(self, name: str) -> Tile:
        """A zero of the width of an array, to start one of its words."""
        return self._create((1, 1), self._slow[name].role, name, 0.0)

    def read(
        self, name: str, rows: Selection, columns: Selection, where: Bools | None = None, otherwise: float = 0.0
    ) -> Floats:
        """A copy of a part of slow memory, all of it written before; ``otherwise`` where ``where`` is False."""
        values = self._slow[name].values
        assert values is not None
        part = pick(values, rows, columns)
        if where is not None:
            part = np.where(where, part, otherwise)
        if np.isnan(part).any():
            raise UnwrittenReadError(
                "a word of slow memory was read before it was written",
                got=f"{int(np.isnan(part).sum())} unwritten words of {name}",
                wanted="words that are inputs, or that were stored earlier",
                do="store the tile first, or skip the pairs that the mask hides",
            )
        return np.array(part)

    def write(self, name: str, rows: Selection, columns: Selection, new: Floats, where: Bools | None = None) -> None:
        """Overwrite a part of slow memory."""
        values = self._slow[name].values
        assert values is not None
        put(values, rows, columns, new, where)


def _must_be_live(*operands: Tile | SlowView | None) -> None:
    for operand in operands:
        if isinstance(operand, Tile):
            operand.must_be_live()
