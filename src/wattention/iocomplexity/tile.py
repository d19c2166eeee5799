"""A tile of fast memory, and the only arithmetic there is: in place, on tiles, counted by the machine.

Rows of a pair tile are queries and columns are keys. Views (:meth:`Tile.part`, :attr:`Tile.T`) cost nothing and stay
valid as long as the tile. ``over`` names the pairs of a masked tile: only those are computed, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wattention.core.errors import UserError
from wattention.iocomplexity.problem import PairTile
from wattention.iocomplexity.selection import Floats, Selection, SlowView, Tags, pick, put, resolve, span

if TYPE_CHECKING:
    from types import TracebackType

    from wattention.iocomplexity.machine import Machine

__all__ = ["Floats", "Selection", "SlowView", "Tags", "Tile"]


class Tile:
    """Words of fast memory; use as a context manager, its room is free again at the end of the block."""

    __slots__ = ("_parent", "_place", "machine", "name", "shape", "tags", "transposed", "values", "width")

    def __init__(
        self,
        machine: Machine,
        name: str,
        shape: tuple[int, int],
        width: int,
        *,
        parent: Tile | None = None,
        place: tuple[Selection, Selection] | None = None,
    ) -> None:
        self.machine, self.name, self.shape, self.width = machine, name, shape, width
        self.values: Floats | None = None
        self.tags: Tags | None = None
        self._parent, self._place = parent, place
        self.transposed = False

    # --- residency ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Tile:
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

    @property
    def size(self) -> int:
        """Numbers in the tile."""
        return self.shape[0] * self.shape[1]

    @property
    def root(self) -> Tile:
        """The tile this one is a view of."""
        return self if self._parent is None else self._parent.root

    def free(self) -> None:
        """Give the room back."""
        self.machine.free(self)

    def must_be_live(self) -> None:
        """Refuse to work on a tile whose room was given back."""
        if not self.machine.is_live(self.root):
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

    def part(self, rows: Selection = slice(None), columns: Selection = slice(None)) -> Tile:
        """Some rows and columns of the tile, in place."""
        rows, columns = resolve(rows, self.shape[0]), resolve(columns, self.shape[1])
        shape = (span(rows), span(columns))
        if shape == self.shape:
            return self
        view = Tile(self.machine, self.name, shape, self.width, parent=self, place=(rows, columns))
        view.transposed = self.transposed
        if self.values is not None:
            view.values = pick(self.values, rows, columns)
        if self.tags is not None:
            view.tags = pick(self.tags, rows, columns)
        return view

    @property
    def T(self) -> Tile:  # noqa: N802 - NumPy's name for it
        """The transpose, as an operand."""
        view = Tile(self.machine, self.name, self.shape[::-1], self.width, parent=self)
        view.transposed = not self.transposed
        view.values = None if self.values is None else self.values.T
        view.tags = None if self.tags is None else self.tags.T
        return view

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

    def _changed(self, *operands: Tile) -> None:
        """Check that all tiles are in fast memory, and tell the observer that this one changes."""
        self.must_be_live()
        for tile in operands:
            tile.must_be_live()
        if self.machine.observer is not None:
            assert self.tags is not None
            self.machine.observer.changed(self.tags, *(t.tags for t in operands if t.tags is not None))

    def _overwrites(self, *others: Tile) -> None:
        """Note that an operation on this tile overwrites others, too."""
        for tile in others:
            tile._changed(self)

    # --- products -----------------------------------------------------------------------------------------------------

    def add_product(
        self,
        left: Tile | SlowView,
        right: Tile | SlowView,
        *,
        onto: PairTile | None = None,
        over: PairTile | None = None,
        scale: float = 1.0,
        weights: Tile | None = None,
    ) -> None:
        """Add scale * left @ right.

        Args:
            left: (rows, k) tile or streamed operand.
            right: (k, columns) tile or streamed operand.
            onto: the pairs, when this tile is a pair tile.
            over: the pairs, when the left operand is a pair tile or its transpose.
            scale: factor.
            weights: (k, 1) factors of the terms, if both operands are streamed.
        """
        self.machine.add_product(self, left, right, onto=onto, over=over, scale=scale, weights=weights)

    def add_numbers(self, values: Floats) -> None:
        """Add what a product has computed; not for programs, which name operands instead."""
        assert self.values is not None
        self._set(self.values + values)

    def add_row_dots(self, left: Tile, right: Tile) -> None:
        """Add to this column the dot products of the rows of two tiles."""
        self._changed(left, right)
        self.machine.multiply_adds += left.size
        if self.values is not None:
            assert left.values is not None
            assert right.values is not None
            self._set(self.values + np.einsum("ij,ij->i", left.values, right.values)[:, None])

    def add_column_sums(self, other: Tile) -> None:
        """Add to this column the sums of the columns of another tile."""
        self._changed(other)
        if self.values is not None:
            assert other.values is not None
            self._set(self.values + other.values.sum(axis=0)[:, None])

    def subtract(self, other: Tile) -> None:
        """Subtract a tile of the same shape."""
        self._changed(other)
        if self.values is not None:
            assert other.values is not None
            self._set(self.values - other.values)

    # --- softmax ------------------------------------------------------------------------------------------------------

    def online_softmax(self, maxima: Tile, sums: Tile, *rescale: Tile, over: PairTile) -> None:
        """Turn scores into exp(S - m) with the running maximum m, and bring m, l and older sums up to date.

        Row by row: m' = max(m, max S), a = exp(m - m'), S <- exp(S - m'), l <- a l + sum S, sums <- a sums; the
        factor a is one word. Source: Milakov and Gimelshein 2018, algorithm 3; FlashAttention-2, algorithm 1.
        """
        self._changed()
        self._overwrites(maxima, sums, *rescale)
        self.machine.room_for(self.machine.widths.statistic, "the rescaling factor of one row")
        self.machine.exponentials += over.pairs
        if self.values is None:
            return
        assert maxima.values is not None
        assert sums.values is not None
        scores = self.values if over.mask is None else np.where(over.mask, self.values, -np.inf)
        new = np.maximum(maxima.values, scores.max(axis=1, keepdims=True))
        factor = np.exp(maxima.values - new)
        scores = np.exp(scores - new)
        sums._set(sums.values * factor + scores.sum(axis=1, keepdims=True))
        maxima._set(new)
        self._set(scores)
        for tile in rescale:
            assert tile.values is not None
            tile._set(tile.values * factor)

    def normalised_softmax(self, maxima: Tile, sums: Tile, decay: Tile, *, over: PairTile) -> None:
        """Turn scores into probabilities of all keys so far, with the factors that older outputs shrink by.

        m' = max(m, max S), a = exp(m - m'), l' = a l + sum exp(S - m'), decay = a l / l', S <- exp(S - m') / l'.
        Source: FlashAttention (Dao et al. 2022), algorithm 1, lines 11 to 13.
        """
        self._changed()
        self._overwrites(maxima, sums, decay)
        self.machine.exponentials += over.pairs
        if self.values is None:
            return
        assert maxima.values is not None
        assert sums.values is not None
        scores = self.values if over.mask is None else np.where(over.mask, self.values, -np.inf)
        new = np.maximum(maxima.values, scores.max(axis=1, keepdims=True))
        scores, old = np.exp(scores - new), sums.values * np.exp(maxima.values - new)
        total = old + scores.sum(axis=1, keepdims=True)
        maxima._set(new)
        sums._set(total)
        decay._set(old / total)
        self._set(scores / total)

    def log_softmax(self, log_normaliser: Tile, decay: Tile, *, over: PairTile) -> None:
        """The same with one statistic, L = m + log l: L' = log(exp L + sum exp S), S <- exp(S - L').

        The factor that older outputs shrink by is decay = exp(L - L').

        Computed relative to the largest of L and S, so that nothing overflows; one exponential a pair.
        """
        self._changed()
        self._overwrites(log_normaliser, decay)
        self.machine.exponentials += over.pairs
        if self.values is None:
            return
        old = log_normaliser.values
        assert old is not None
        scores = self.values if over.mask is None else np.where(over.mask, self.values, -np.inf)
        top = np.maximum(old, scores.max(axis=1, keepdims=True))
        scores = np.exp(scores - top)
        total = np.exp(old - top) + scores.sum(axis=1, keepdims=True)
        new = top + np.log(total)
        decay._set(np.exp(old - new))
        log_normaliser._set(new)
        self._set(scores / total)

    def exp_minus(self, shift: Tile, *, over: PairTile) -> None:
        """S <- exp(S - shift of the row); masked pairs become 0."""
        self._changed(shift)
        self.machine.exponentials += over.pairs
        if self.values is not None:
            assert shift.values is not None
            values = np.exp(self.values - shift.values)
            self._set(values if over.mask is None else np.where(over.mask, values, 0.0))

    def exp_difference(self, other: Tile) -> None:
        """Statistics: x <- exp(x - other)."""
        self._changed(other)
        if self.values is not None:
            assert other.values is not None
            self._set(np.exp(self.values - other.values))

    def rebase(self, maxima: Tile, new: Tile) -> None:
        """Turn sums relative to old maxima into sums relative to new ones: x <- exp(m - m') x, m <- m'."""
        self._changed(maxima, new)
        maxima._changed(new)
        if self.values is not None:
            assert maxima.values is not None
            assert new.values is not None
            self._set(self.values * np.exp(maxima.values - new.values))
            maxima._set(new.values)

    def scale_rows(self, factors: Tile) -> None:
        """Multiply every row by its factor."""
        self._changed(factors)
        if self.values is not None:
            assert factors.values is not None
            self._set(self.values * factors.values)

    def divide_rows(self, sums: Tile) -> None:
        """O <- O / l; rows that saw no key stay 0."""
        self._changed(sums)
        if self.values is not None:
            assert sums.values is not None
            self._set(self.values / np.where(sums.values == 0, 1.0, sums.values))

    def to_log_normaliser(self, maxima: Tile) -> None:
        """l <- L = m + log l; minus infinity for rows that saw no key."""
        self._changed(maxima)
        if self.values is not None:
            assert maxima.values is not None
            empty = self.values == 0
            self._set(
                np.where(
                    empty, -np.inf, np.where(empty, 0.0, maxima.values) + np.log(np.where(empty, 1.0, self.values))
                )
            )

    def to_score_gradient(
        self,
        probabilities: Tile | SlowView,
        delta: Tile,
        *,
        over: PairTile,
        factors: Tile | None = None,
        scale: float = 1.0,
    ) -> None:
        """dP <- dS = scale * P (dP - D of the row).

        Probabilities that lie in slow memory pass word by word, times a factor of their row where ``factors`` are
        given.
        """
        self._changed(delta)
        if isinstance(probabilities, SlowView):
            self.machine.stream_score_gradient(self, probabilities, delta, factors=factors, over=over, scale=scale)
            return
        self._changed(probabilities, delta)
        if self.values is not None:
            assert probabilities.values is not None
            self.set_score_gradient(probabilities.values, delta, scale)

    def set_score_gradient(self, probabilities: Floats, delta: Tile, scale: float) -> None:
        """The numbers of :meth:`to_score_gradient`; not for programs."""
        assert self.values is not None
        assert delta.values is not None
        self._set(scale * probabilities * (self.values - delta.values))

    def to_features(self) -> None:
        """x <- elu(x) + 1, the feature map of linear attention. Source: Katharopoulos et al. 2020, equation 7."""
        self._changed()
        if self.values is not None:
            self._set(np.where(self.values > 0, self.values + 1.0, np.exp(np.minimum(self.values, 0.0))))
