"""Products whose operands pass through fast memory once: fast for counting and numbers, literal for an observer.

The literal forms are the definition. The fast forms do the same loads, stores and multiply-adds and need the same
room, in one call instead of a loop over words.

* one operand streams: word by word, through a buffer of one word;
* both stream: for each term of the sum a column of the left (or a row of the right operand, if that is shorter) is
loaded,
  and the other operand passes word by word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wattention.iocomplexity.masks import Bools
from wattention.iocomplexity.observer import Streams, Sums
from wattention.iocomplexity.problem import PairTile
from wattention.iocomplexity.selection import Floats, Selection, SlowView, Tags, narrow, span
from wattention.iocomplexity.tile import Tile

if TYPE_CHECKING:
    from wattention.iocomplexity.machine import Machine

Operand = Tile | SlowView
ALL = slice(None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """scale * left @ right, of which a mask hides some pairs."""

    left: Operand
    right: Operand
    scale: float
    onto: PairTile | None
    """The pairs of the result, if that is a pair tile."""
    over: PairTile | None
    """The pairs of the left operand, if that is a pair tile (or its transpose)."""
    weights: Tile | None = None
    """Factors of the terms of the sum, (depth, 1): the held column or row is scaled as it arrives."""

    @property
    def multiply_adds(self) -> int:
        """Those of unmasked pairs."""
        (height, depth), width = self.left.shape, self.right.shape[1]
        pairs = self.onto or self.over
        return height * depth * width if pairs is None else height * depth * width // pairs.size * pairs.pairs

    def left_mask(self) -> Bools | None:
        """The mask in the shape of the left operand."""
        if self.over is None or self.over.mask is None:
            return None
        return self.over.mask if self.over.mask.shape == self.left.shape and not self._turned else self.over.mask.T

    @property
    def _turned(self) -> bool:
        return self.left.transposed

    def numbers(self, machine: Machine) -> Floats:
        """The product."""
        left = _numbers(machine, self.left, self.left_mask())
        if self.weights is not None:
            assert self.weights.values is not None
            left = left * self.weights.values.T
        product = left @ _numbers(machine, self.right, None)
        return product if self.scale == 1.0 else self.scale * product


def _numbers(machine: Machine, operand: Operand, mask: Bools | None) -> Floats:
    if isinstance(operand, SlowView):
        if operand.transposed:
            mask = None if mask is None else mask.T
            return machine.read(operand.name, operand.rows, operand.columns, mask).T
        return machine.read(operand.name, operand.rows, operand.columns, mask)
    assert operand.values is not None
    return operand.values


# --- into fast memory -------------------------------------------------------------------------------------------------


def add_product(machine: Machine, into: Tile, product: Product) -> None:
    """Add a product to a tile."""
    left, right = product.left, product.right
    if machine.observer is not None and not _taken_in_at_once(machine, into, product):
        _add_literally(machine, into, product)
        return
    if isinstance(left, SlowView):
        pairs = product.over
        machine.count_traffic(left.name, loads=left.size if pairs is None else left.size // pairs.size * pairs.pairs)
    if isinstance(right, SlowView):
        machine.count_traffic(right.name, loads=right.size)
    buffer = stream_buffer(machine, left, right)
    if buffer:
        machine.room_for(buffer, "streamed operands")
    if machine.numbers:
        into.add_numbers(product.numbers(machine))


def _taken_in_at_once(machine: Machine, into: Tile, product: Product) -> bool:
    """Whether the observer takes a product without masks and weights in one piece."""
    left, right = product.left, product.right
    hidden = [pairs for pairs in (product.onto, product.over) if pairs is not None and pairs.mask is not None]
    if hidden or product.weights is not None:
        return False
    if isinstance(left, SlowView) and isinstance(right, SlowView):
        how: Streams = "columns held" if _holds_columns(machine, left, right) else "rows held"
    elif isinstance(left, SlowView):
        how = "left"
    elif isinstance(right, SlowView):
        how = "right"
    else:
        return False
    assert machine.observer is not None
    return machine.observer.streamed(into.marks, _marks(machine, left), _marks(machine, right), how)


def _marks(machine: Machine, operand: Operand) -> Tags:
    if isinstance(operand, Tile):
        return operand.marks
    tags = machine.tags_of(operand.name, operand.rows, operand.columns)
    return tags.T if operand.transposed else tags


def stream_buffer(machine: Machine, left: Operand, right: Operand) -> int:
    """Words of fast memory that streaming takes."""
    column = machine.width_of(left.name) if isinstance(left, SlowView) else 0
    row = machine.width_of(right.name) if isinstance(right, SlowView) else 0
    if column and row:
        return row + column * left.shape[0] if _holds_columns(machine, left, right) else column + row * right.shape[1]
    return column + row


def _holds_columns(machine: Machine, left: Operand, right: Operand) -> bool:
    """Whether columns of the left operand are held while words of the right one pass."""
    column, row = machine.width_of(left.name), machine.width_of(right.name)
    return row + column * left.shape[0] <= column + row * right.shape[1]


def _add_literally(machine: Machine, into: Tile, product: Product) -> None:
    """The same, one load, one product and one free at a time."""
    left, right, mask = product.left, product.right, product.left_mask()
    onto = None if product.onto is None else product.onto.mask
    streams = isinstance(left, SlowView) or isinstance(right, SlowView)
    if not streams and mask is None:
        _multiply(machine, into, left, right, scale=product.scale, mask=onto)
        return
    holds_columns = isinstance(right, SlowView) and (isinstance(left, Tile) or _holds_columns(machine, left, right))
    for step in range(left.shape[1]):
        t = slice(step, step + 1)
        rows = ALL if mask is None else np.flatnonzero(mask[:, step])
        part, part_mask = into.part(rows=rows), None if onto is None else onto[rows]
        if holds_columns or not streams:
            with _Passing(machine, left, rows, t) as column:
                if product.weights is not None:
                    column.scale_rows(product.weights.part(rows=t))
                for j in _singles(right.shape[1]):
                    with _Passing(machine, right, t, j) as word:
                        mask_j = None if part_mask is None else part_mask[:, j]
                        _multiply(machine, part.part(columns=j), column, word, scale=product.scale, mask=mask_j)
        else:
            with _Passing(machine, right, t, ALL) as row:
                if product.weights is not None:
                    row.scale_rows(product.weights.part(rows=t))
                for i in _singles(part.shape[0]):
                    with _Passing(machine, left, narrow_rows(rows, i), t) as word:
                        mask_i = None if part_mask is None else part_mask[i]
                        _multiply(machine, part.part(rows=i), word, row, scale=product.scale, mask=mask_i)


def narrow_rows(rows: Selection, single: slice) -> Selection:
    """One row of a selection of rows."""
    return single if isinstance(rows, slice) else rows[single]


def _multiply(machine: Machine, into: Tile, left: Operand, right: Operand, *, scale: float, mask: Bools | None) -> None:
    assert isinstance(left, Tile)
    assert isinstance(right, Tile)
    assert machine.observer is not None
    machine.observer.product(into.marks, left.marks, right.marks, mask)
    if machine.numbers:
        into.add_numbers(scale * (_numbers(machine, left, None) @ _numbers(machine, right, None)))


class _Passing:
    """Part of an operand, in fast memory for the length of a block: loaded if it streams, a view if it is resident."""

    def __init__(self, machine: Machine, operand: Operand, rows: Selection, columns: Selection) -> None:
        self._loaded = isinstance(operand, SlowView)
        if isinstance(operand, Tile):
            self._tile = operand.part(rows, columns)
        elif operand.transposed:
            place = narrow(operand.rows, columns), narrow(operand.columns, rows)
            self._tile = machine.load(operand.name, *place, turned=True)
        else:
            self._tile = machine.load(operand.name, narrow(operand.rows, rows), narrow(operand.columns, columns))

    def __enter__(self) -> Tile:
        return self._tile

    def __exit__(self, *_: object) -> None:
        if self._loaded:
            self._tile.free()


def _singles(length: int) -> list[slice]:
    return [slice(i, i + 1) for i in range(length)]


def score_gradient(
    machine: Machine,
    tile: Tile,
    probabilities: SlowView,
    delta: Tile,
    *,
    factors: Tile | None,
    over: PairTile,
    scale: float,
) -> None:
    """dP <- scale * P (dP - D), the words of P passing one by one, times the factor of their row."""
    if machine.observer is None:
        machine.room_for(machine.width_of(probabilities.name), "a streamed probability")
        machine.count_traffic(probabilities.name, loads=over.pairs)
        if machine.numbers:
            values = _numbers(machine, probabilities, over.mask)
            if factors is not None:
                assert factors.values is not None
                values = values * factors.values
            tile.set_score_gradient(values, delta, scale)
        return
    for i in _singles(tile.shape[0]):
        for j in _singles(tile.shape[1]):
            word = tile.part(i, j)
            if over.mask is None or over.mask[i, j][0, 0]:
                with _Passing(machine, probabilities, i, j) as p:
                    if factors is not None:
                        p.scale_rows(factors.part(rows=i))
                    word.to_score_gradient(p, delta.part(rows=i), over=over, scale=scale)
            elif machine.numbers:
                word.set_score_gradient(np.zeros((1, 1)), delta.part(rows=i), scale)


# --- into slow memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowSum:
    """A part of slow memory that grows by a product, one word at a time."""

    name: str
    rows: Selection
    columns: Selection
    fresh: Bools
    """Rows whose sum starts now."""
    decay: Tile | None
    """Factors of the old sum, one a row."""
    remote: bool
    """Slow memory adds by itself."""


def accumulate(machine: Machine, target: SlowSum, product: Product) -> None:
    """Replace a part of slow memory by decay * old + product; a column of a streamed right operand is held."""
    if machine.observer is not None and not _accumulated_at_once(machine, target, product):
        _accumulate_literally(machine, target, product)
        return
    right = product.right
    buffer = 0
    if isinstance(right, SlowView):
        machine.count_traffic(right.name, loads=right.size)
        buffer = machine.width_of(right.name) * right.shape[0]
    machine.room_for(machine.width_of(target.name) + buffer, f"a word of {target.name}")
    height, width = span(target.rows), span(target.columns)
    old_rows = height - int(np.count_nonzero(target.fresh))
    machine.count_traffic(target.name, loads=0 if target.remote else old_rows * width, stores=height * width)
    if machine.numbers:
        new = product.numbers(machine)
        if old_rows:
            old_part: Selection = ALL if old_rows == height else np.flatnonzero(~target.fresh)
            old = machine.read(target.name, narrow(target.rows, old_part), target.columns)
            if target.decay is not None:
                assert target.decay.values is not None
                old = old * target.decay.values[old_part]
            new[old_part] += old
        machine.write(target.name, target.rows, target.columns, new)


def _accumulated_at_once(machine: Machine, target: SlowSum, product: Product) -> bool:
    """Whether the observer takes an update without masks, all of whose rows are fresh or none, in one piece."""
    hidden = product.over is not None and product.over.mask is not None
    if hidden or target.remote or not (target.fresh.all() or not target.fresh.any()):
        return False
    how = Sums(
        fresh=bool(target.fresh.all()),
        decay=None if target.decay is None else target.decay.marks,
        right_streams=isinstance(product.right, SlowView),
    )
    assert machine.observer is not None
    home = machine.tags_of(target.name, target.rows, target.columns)
    return machine.observer.accumulated(home, _marks(machine, product.left), _marks(machine, product.right), how)


def _accumulate_literally(machine: Machine, target: SlowSum, product: Product) -> None:
    left, mask = product.left, product.left_mask()
    assert isinstance(left, Tile)
    for j in _singles(span(target.columns)):
        with _Passing(machine, product.right, ALL, j) as column:
            for i in _singles(span(target.rows)):
                place = narrow(target.rows, i), narrow(target.columns, j)
                starts = bool(target.fresh[i.start])
                made = starts or target.remote
                word = machine.fresh_word(target.name) if made else machine.load(target.name, *place)
                with word:
                    if target.decay is not None and not starts:
                        word.scale_rows(target.decay.part(rows=i))
                    terms = ALL if mask is None else np.flatnonzero(mask[i.start])
                    _multiply(
                        machine, word, left.part(i, terms), column.part(rows=terms), scale=product.scale, mask=None
                    )
                    machine.store(word, target.name, *place, add=target.remote and not starts)
