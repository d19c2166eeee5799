"""Parts of arrays and tiles: rows and columns as slices or index arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.iocomplexity.problem.mask_kinds import Ints

Floats = NDArray[np.float64]
Selection = slice | Ints
Tags = NDArray[np.int64]
"""What an observer calls the words of a tile or of an array."""

ALL = slice(None)


def span(selection: Selection) -> int:
    """How many rows or columns a resolved selection names."""
    return selection.stop - selection.start if isinstance(selection, slice) else len(selection)


def resolve(selection: Selection, length: int) -> Selection:
    """Turn an open slice into one with both ends."""
    if isinstance(selection, slice):
        start = 0 if selection.start is None else selection.start
        stop = length if selection.stop is None else selection.stop
        assert 0 <= start <= stop <= length, f"{selection} is outside 0..{length}"
        return slice(start, stop)
    return selection


def pick(values: NDArray[Any], rows: Selection, columns: Selection) -> NDArray[Any]:
    """The chosen rows and columns: a view for slices, a copy otherwise."""
    if isinstance(rows, slice) or isinstance(columns, slice):
        return np.asarray(values[rows, columns])
    return np.asarray(values[np.ix_(rows, columns)])


def put(values: NDArray[Any], rows: Selection, columns: Selection, new: NDArray[Any], where: Any = None) -> None:
    """Overwrite the chosen rows and columns, or the words of them that ``where`` selects."""
    if where is not None:
        new = np.where(where, new, pick(values, rows, columns))
    if isinstance(rows, slice) or isinstance(columns, slice):
        values[rows, columns] = new
    else:
        values[np.ix_(rows, columns)] = new


def narrow(outer: Selection, inner: Selection) -> Selection:
    """A selection within a selection."""
    if not isinstance(outer, slice):
        return np.asarray(outer[inner])
    if not isinstance(inner, slice):
        return np.asarray(inner + outer.start)
    start, length = outer.start, outer.stop - outer.start
    first = 0 if inner.start is None else inner.start
    last = length if inner.stop is None else inner.stop
    return slice(start + first, start + last)
