"""Slow memory: named arrays that start as NaN, and parts of them, named before they move.

Slow memory counts nothing by itself: who reads or writes here pays at the
:class:`~wattention.iocomplexity.memory.ledger.Ledger`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.iocomplexity.memory.selection import ALL, Floats, Selection, narrow, pick, put, resolve, span
from wattention.iocomplexity.problem.masks import Bools


class UnwrittenReadError(UserError):
    """A word of slow memory was read before anything was written to it."""


@dataclass(slots=True, eq=False)
class SlowArray:
    """One array of slow memory; ``values`` is None in null mode, ``tags`` where nobody watches."""

    name: str
    shape: tuple[int, int]
    role: str
    width: int
    """Words one number takes."""
    scratch_words: int
    values: Floats | None
    tags: NDArray[Any] | None = None

    def part(self, rows: Selection = ALL, columns: Selection = ALL) -> SlowView:
        """Name some rows and columns."""
        return SlowView(self, resolve(rows, self.shape[0]), resolve(columns, self.shape[1]))


class SlowView:
    """A part of an array of slow memory: what a load or a store names, or an operand to be streamed."""

    __slots__ = ("array", "columns", "home_shape", "rows", "shape", "transposed")

    def __init__(self, array: SlowArray, rows: Selection, columns: Selection, *, transposed: bool = False) -> None:
        self.array, self.rows, self.columns, self.transposed = array, rows, columns, transposed
        self.home_shape = span(rows), span(columns)
        """Rows and columns as the array lies."""
        self.shape = self.home_shape[::-1] if transposed else self.home_shape
        """Rows and columns as an operand."""

    @property
    def name(self) -> str:
        """The array it is a part of."""
        return self.array.name

    @property
    def width(self) -> int:
        """Words one number takes."""
        return self.array.width

    @property
    def size(self) -> int:
        """Numbers in the part."""
        return self.shape[0] * self.shape[1]

    @property
    def T(self) -> SlowView:  # noqa: N802 - NumPy's name for it
        """The transpose."""
        return SlowView(self.array, self.rows, self.columns, transposed=not self.transposed)

    def part(self, rows: Selection = ALL, columns: Selection = ALL) -> SlowView:
        """Some rows and columns, as an operand."""
        if self.transposed:
            rows, columns = columns, rows
        return SlowView(self.array, narrow(self.rows, rows), narrow(self.columns, columns), transposed=self.transposed)

    # --- the words themselves, as the array lies ----------------------------------------------------------------------

    @property
    def tags(self) -> NDArray[Any]:
        """The observer's tags of the words: a view for slices."""
        assert self.array.tags is not None
        return pick(self.array.tags, self.rows, self.columns)

    @tags.setter
    def tags(self, new: NDArray[Any]) -> None:
        assert self.array.tags is not None
        put(self.array.tags, self.rows, self.columns, new)

    def read(self, where: Bools | None = None, otherwise: float = 0.0) -> Floats:
        """A copy of the numbers, all of them written before; ``otherwise`` where ``where`` is False.

        Raises:
            UnwrittenReadError: a number was never written.
        """
        assert self.array.values is not None
        part = pick(self.array.values, self.rows, self.columns)
        if where is not None:
            part = np.where(where, part, otherwise)
        if np.isnan(part).any():
            raise UnwrittenReadError(
                "a word of slow memory was read before it was written",
                got=f"{int(np.isnan(part).sum())} unwritten words of {self.name}",
                wanted="words that are inputs, or that were stored earlier",
                do="store the tile first, or skip the pairs that the mask hides",
            )
        return np.array(part)

    def write(self, new: Floats, where: Bools | None = None) -> None:
        """Overwrite the numbers, or those that ``where`` selects."""
        assert self.array.values is not None
        put(self.array.values, self.rows, self.columns, new, where)
