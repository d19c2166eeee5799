"""The account of one run: which words fast memory holds, what has crossed, what was computed, and who watches.

Whatever lives in fast memory or passes through it knows the ledger: tiles take room here and give it back, products and
streams count here. The machine reads the totals.
"""

from __future__ import annotations

from typing import Protocol

from wattention.core.errors import UserError
from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.observer import Observer
from wattention.iocomplexity.memory.slow import SlowArray
from wattention.iocomplexity.problem.widths import Widths


class FastMemoryFullError(UserError):
    """A tile does not fit into what is left of fast memory."""


class Held(Protocol):
    """What takes room, as messages call it."""

    @property
    def name(self) -> str:
        """What it holds."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""


class Ledger:
    """Room of ``fast_words`` words, traffic and arithmetic of one run.

    Args:
        fast_words: M.
        widths: words one number takes, by role.
        numbers: whether the run computes, or counts only.
        observer: sees every step, word by word.
    """

    __slots__ = (
        "_live", "all_is_statistics", "exponentials", "fast_words", "loads", "multiply_adds", "numbers", "observer",
        "peak", "scratch_peak", "scratch_words", "statistics_loads", "statistics_stores", "stores", "used", "widths",
    )  # fmt: skip

    def __init__(self, fast_words: int, *, widths: Widths, numbers: bool, observer: Observer | None) -> None:
        if fast_words < 1:
            raise UserError("size of fast memory", got=fast_words, wanted="at least 1 word")
        self.fast_words, self.widths, self.numbers, self.observer = fast_words, widths, numbers, observer
        self.used = self.peak = 0
        self.loads = self.stores = self.statistics_loads = self.statistics_stores = 0
        self.multiply_adds = self.exponentials = 0
        self.scratch_words = self.scratch_peak = 0
        self.all_is_statistics = False
        self._live: dict[int, Held] = {}

    # --- room ---------------------------------------------------------------------------------------------------------

    def hold(self, held: Held, words: int) -> None:
        """Give room to a tile until it is released.

        Raises:
            FastMemoryFullError: it does not fit; the message says what is free and what is live.
        """
        if words > self.fast_words - self.used:
            raise self._full(words, f"{held.name} {held.shape[0]}x{held.shape[1]}")
        self.used += words
        self.peak = max(self.peak, self.used)
        self._live[id(held)] = held

    def room_for(self, words: int, what: str) -> None:
        """Check that a temporary of ``words`` words fits for a moment, and remember the peak.

        Raises:
            FastMemoryFullError: as :meth:`hold`.
        """
        if words > self.fast_words - self.used:
            raise self._full(words, what)
        self.peak = max(self.peak, self.used + words)

    def _full(self, words: int, what: str) -> FastMemoryFullError:
        free = self.fast_words - self.used
        return FastMemoryFullError(
            f"fast memory is full: no room for {what}",
            got=f"{words} words needed, {free} free of {self.fast_words}; live: {self.live()}",
            wanted="tiles that fit together",
            do="plan smaller tiles, or give the machine more fast memory",
        )

    def release(self, held: Held, words: int) -> None:
        """Take the room of a tile back."""
        assert id(held) in self._live, f"{held.name} is freed twice, or is a view"
        del self._live[id(held)]
        self.used -= words

    def live(self) -> str:
        """What occupies fast memory, for messages."""
        return ", ".join(f"{t.name} {t.shape[0]}x{t.shape[1]}" for t in self._live.values()) or "nothing"

    # --- traffic ------------------------------------------------------------------------------------------------------

    def crossed(self, array: SlowArray, *, loads: int = 0, stores: int = 0) -> None:
        """Count numbers of an array that cross, each at its width."""
        loads, stores = loads * array.width, stores * array.width
        self.loads += loads
        self.stores += stores
        if array.role == "statistics" or self.all_is_statistics:
            self.statistics_loads += loads
            self.statistics_stores += stores

    def scratch(self, words: int) -> None:
        """Scratch of slow memory that a program takes, or gives back (negative)."""
        self.scratch_words += words
        self.scratch_peak = max(self.scratch_peak, self.scratch_words)

    def count(self) -> Count:
        """What the run has cost so far."""
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
