"""Numbers that lie in fast memory: they take room, come from slow memory and go there, and are overwritten in place.

This is what products and streams know of a tile; programs use :class:`~wattention.iocomplexity.memory.tile.Tile`,
which adds the arithmetic of attention. Views (:meth:`Resident.part`, :attr:`Resident.T`) cost nothing and stay valid as
long as the tile.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np

from wattention.core.errors import UserError
from wattention.iocomplexity.memory.ledger import Ledger
from wattention.iocomplexity.memory.selection import ALL, Floats, Selection, Tags, pick, put, resolve, span
from wattention.iocomplexity.memory.slow import SlowView
from wattention.iocomplexity.problem.masks import Bools


class Resident:
    """A rectangle of fast memory; as a context manager, its room is free again at the end of the block."""

    __slots__ = (
        "_held", "_parent", "_place", "_root", "ledger", "name", "shape", "tags", "transposed", "values", "width",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        shape: tuple[int, int],
        width: int,
        *,
        parent: Self | None = None,
        place: tuple[Selection, Selection] | None = None,
    ) -> None:
        self.ledger, self.name, self.shape, self.width = ledger, name, shape, width
        self.values: Floats | None = None
        self.tags: Tags | None = None
        self._parent, self._place = parent, place
        self._root: Self | None = None if parent is None else parent._root or parent
        self._held = self.transposed = False

    # --- coming and going ---------------------------------------------------------------------------------------------

    @classmethod
    def _placed(cls, ledger: Ledger, name: str, shape: tuple[int, int], width: int) -> Self:
        tile = cls(ledger, name, shape, width)
        ledger.hold(tile, shape[0] * shape[1] * width)
        tile._held = True
        return tile

    @classmethod
    def made(cls, ledger: Ledger, name: str, shape: tuple[int, int], role: str, value: float) -> Self:
        """Make numbers in fast memory, all of them ``value``; costs room, but no traffic."""
        tile = cls._placed(ledger, name, shape, ledger.widths.of(role))
        if ledger.numbers:
            tile.values = np.full(shape, value)
        if ledger.observer is not None:
            tile.tags = ledger.observer.created(shape, role)
        return tile

    @classmethod
    def loaded(cls, ledger: Ledger, source: SlowView, where: Bools | None = None, otherwise: float = 0.0) -> Self:
        """Copy a part of slow memory, turned if the view is; ``where`` (as the array lies) names the words to copy."""
        array, shape = source.array, source.home_shape
        tile = cls._placed(ledger, array.name, shape, array.width)
        ledger.crossed(array, loads=tile.size if where is None else int(np.count_nonzero(where)))
        turned = source.transposed
        if array.values is not None:
            values = source.read(where, otherwise)
            tile.values = values.T if turned else values
        if ledger.observer is not None:
            tags = ledger.observer.loaded(source.tags, where)
            tile.tags = tags.T if turned else tags
        if turned:
            tile.shape = shape[::-1]
        return tile

    def store(self, target: SlowView, *, where: Bools | None = None, add: bool = False) -> None:
        """Write the numbers, or those ``where`` selects, to slow memory; with ``add``, slow memory does the sum."""
        self.must_be_live()
        fits = self.shape == target.home_shape
        assert fits, f"a {self.shape} tile does not fit {target.name}[{target.rows}, {target.columns}]"
        array, observer = target.array, self.ledger.observer
        self.ledger.crossed(array, stores=self.size if where is None else int(np.count_nonzero(where)))
        if array.values is not None:
            assert self.values is not None
            target.write(self.values + target.read() if add else self.values, where)
        if observer is not None:
            home = target.tags.copy()
            chosen = ALL if where is None else where
            home[chosen] = observer.stored(self.marks[chosen], home[chosen])
            target.tags = home

    def free(self) -> None:
        """Give the room back."""
        self.ledger.release(self, self.size * self.width)
        self._held = False
        if self.ledger.observer is not None:
            self.ledger.observer.freed(self.marks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __array__(self, *_: object, **__: object) -> Floats:
        """Refuse to become an array: arithmetic outside the machine would be free."""
        raise UserError(
            "a tile cannot leave fast memory as an array", got=self.name, wanted="an operation of the tile",
            do="use a method of Tile, or store the tile and read the result after the run",
        )  # fmt: skip

    # --- residency ----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Numbers in the tile."""
        return self.shape[0] * self.shape[1]

    @property
    def is_live(self) -> bool:
        """Whether it is in fast memory, or the tile it is a view of."""
        return (self._root or self)._held

    def must_be_live(self) -> None:
        """Refuse to work on a tile whose room was given back."""
        if not (self._root or self)._held:
            raise UserError(
                "a tile was used after it had left fast memory",
                got=self.name,
                wanted="a tile in fast memory",
                do="load it again, or keep the work inside its with block",
            )

    @property
    def marks(self) -> Tags:
        """The observer's tags of the words."""
        assert self.tags is not None
        return self.tags

    # --- views --------------------------------------------------------------------------------------------------------

    def part(self, rows: Selection = ALL, columns: Selection = ALL) -> Self:
        """Some rows and columns of the tile, in place."""
        rows, columns = resolve(rows, self.shape[0]), resolve(columns, self.shape[1])
        shape = (span(rows), span(columns))
        if shape == self.shape:
            return self
        view = type(self)(self.ledger, self.name, shape, self.width, parent=self, place=(rows, columns))
        view.transposed = self.transposed
        if self.values is not None:
            view.values = pick(self.values, rows, columns)
        if self.tags is not None:
            view.tags = pick(self.tags, rows, columns)
        return view

    @property
    def T(self) -> Self:  # noqa: N802 - NumPy's name for it
        """The transpose, as an operand."""
        view = type(self)(self.ledger, self.name, self.shape[::-1], self.width, parent=self)
        view.transposed = not self.transposed
        view.values = None if self.values is None else self.values.T
        view.tags = None if self.tags is None else self.tags.T
        return view

    # --- overwriting --------------------------------------------------------------------------------------------------

    def _set(self, values: Floats) -> None:
        """Overwrite the words of the tile, and of the tile it is a view of."""
        assert self.values is not None
        assert self._place is not None or self._parent is None, "a transpose is an operand, not a target"
        self.values[...] = values
        self._write_back()

    def _write_back(self) -> None:
        """A view by index arrays is a copy of the numbers: put them back, up to the tile itself."""
        if self._parent is not None and self._place is not None:
            if not all(isinstance(p, slice) for p in self._place):
                assert self.values is not None
                assert self._parent.values is not None
                put(self._parent.values, *self._place, self.values)
            self._parent._write_back()

    def _changed(self, *operands: Resident) -> None:
        """Check that all tiles are in fast memory, and tell the observer that this one changes."""
        self.must_be_live()
        for tile in operands:
            tile.must_be_live()
        if self.ledger.observer is not None:
            self.ledger.observer.changed(self.marks, *(t.tags for t in operands if t.tags is not None))

    def _overwrites(self, *others: Resident) -> None:
        """Note that an operation on this tile overwrites others, too."""
        for tile in others:
            tile._changed(self)

    def add_numbers(self, values: Floats) -> None:
        """Add what a product has computed; not for programs, which name operands instead."""
        assert self.values is not None
        self._set(self.values + values)

    def scale_rows(self, factors: Resident) -> None:
        """Multiply every row by its factor."""
        self._changed(factors)
        if self.values is not None:
            assert factors.values is not None
            self._set(self.values * factors.values)

    def differentiate_softmax(self, probabilities: Resident, delta: Resident, scale: float) -> None:
        """dP <- scale * P (dP - D of the row), all of them resident; see ``Tile.to_score_gradient``."""
        self._changed(delta)
        self._changed(probabilities, delta)
        if self.values is not None:
            assert probabilities.values is not None
            self.set_score_gradient(probabilities.values, delta, scale)

    def set_score_gradient(self, probabilities: Floats, delta: Resident, scale: float) -> None:
        """The numbers of :meth:`differentiate_softmax`; not for programs."""
        assert self.values is not None
        assert delta.values is not None
        self._set(scale * probabilities * (self.values - delta.values))
