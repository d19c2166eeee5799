"""A two-level memory machine: M words of fast memory, unlimited slow memory, every word that crosses is counted.

The machine has no cache policy: a program loads tiles, computes on tiles, stores tiles, and pays one word per word
moved (Hong and Kung 1981). Honest counts come from four rules:

* slow memory is private and starts as NaN; reading a word that was never written is an error;
* numbers leave slow memory only as a :class:`~wattention.iocomplexity.memory.tile.Tile`, whose words are charged until
it is freed;
* all arithmetic happens in place in tiles; a temporary is a tile too;
* a number may be several words wide (:class:`~wattention.iocomplexity.problem.widths.Widths`), in fast memory as in
traffic.

``Machine(..., numbers=False)`` counts the same program without computing (null mode).

Operands named by :meth:`Machine.slow` are streamed: they pass through a buffer of one word (one operand streamed) or of
one column and one row (both streamed), which is a loop of loads, products and frees, done at once. With an observer
attached (address traces, lowering to a graph) the loop is executed literally, word by word.

The machine only composes. Arrays (``slow``), the account (``ledger``), what lies in fast memory (``resident``),
streamed products (``streaming``) and arithmetic (``tile``) each know those before them, and none of them knows the
machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from wattention.iocomplexity.memory import streaming
from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.ledger import Ledger
from wattention.iocomplexity.memory.observer import Observer
from wattention.iocomplexity.memory.selection import ALL, Floats, Selection, span
from wattention.iocomplexity.memory.slow import SlowArray, SlowView
from wattention.iocomplexity.memory.streaming import Product, SlowSum
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.problem.masks import Bools, Ints
from wattention.iocomplexity.problem.widths import Widths


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
        self._ledger = Ledger(fast_words, widths=widths or Widths(), numbers=numbers, observer=observer)
        self._slow: dict[str, SlowArray] = {}

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
        ledger = self._ledger
        values = np.full(shape, np.nan) if ledger.numbers else None
        width = ledger.widths.of(role)
        array = SlowArray(name, shape, role, width, scratch * width, values)
        ledger.scratch(array.scratch_words)
        if ledger.observer is not None:
            array.tags = ledger.observer.placed(array)
        self._slow[name] = array

    def discard(self, name: str) -> None:
        """Forget an array of slow memory."""
        self._ledger.scratch(-self._slow.pop(name).scratch_words)

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
        return self._slow[name].part(rows, columns)

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
        part = self._slow[name].part(rows, columns)
        return Tile.loaded(self._ledger, part.T if turned else part, where, otherwise)

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
        tile.store(self._slow[name].part(rows, columns), where=where, add=add)

    def fill(self, name: str, rows: Ints, value: float) -> None:
        """Store a constant, made in one word of fast memory, into whole rows of an array."""
        array, ledger = self._slow[name], self._ledger
        if ledger.observer is not None:
            with Tile.made(ledger, name, (1, 1), array.role, value) as word:
                for row in rows:
                    for column in range(array.shape[1]):
                        word.store(array.part(slice(row, row + 1), slice(column, column + 1)))
            return
        ledger.room_for(array.width, f"a word of {name}")
        ledger.crossed(array, stores=len(rows) * array.shape[1])
        if array.values is not None:
            array.values[rows] = value

    def zeros(self, height: int, width: int = 1, *, role: str = "accumulators", name: str = "sum") -> Tile:
        """Make a tile of zeros in fast memory; costs room, but no traffic."""
        return Tile.made(self._ledger, name, (height, width), role, 0.0)

    def statistics(self, height: int, *, name: str = "statistics") -> Tile:
        """Make a column of statistics, zero at first."""
        return Tile.made(self._ledger, name, (height, 1), "statistics", 0.0)

    def maxima(self, height: int, *, name: str = "maxima") -> Tile:
        """Make a column of running maxima, or of L: minus infinity, as no key was seen yet."""
        return Tile.made(self._ledger, name, (height, 1), "statistics", -np.inf)

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
        home = self._slow[name].part(rows, columns)
        starts = np.full(span(home.rows), fresh) if isinstance(fresh, bool) else fresh
        product = Product(left=left, right=right, scale=scale, onto=None, over=over)
        streaming.accumulate(self._ledger, SlowSum(home=home, fresh=starts, decay=decay, remote=remote), product)

    # --- the account --------------------------------------------------------------------------------------------------

    @contextmanager
    def as_statistics(self) -> Iterator[None]:
        """Count all traffic inside as traffic for statistics (the pass over O and dO that makes D)."""
        self._ledger.all_is_statistics = True
        try:
            yield
        finally:
            self._ledger.all_is_statistics = False

    @property
    def numbers(self) -> bool:
        """Whether the machine computes, or counts only."""
        return self._ledger.numbers

    @property
    def used(self) -> int:
        """Words of fast memory in use."""
        return self._ledger.used

    def live(self) -> str:
        """What occupies fast memory, for messages."""
        return self._ledger.live()

    def count(self) -> Count:
        """What the program has cost so far."""
        return self._ledger.count()
