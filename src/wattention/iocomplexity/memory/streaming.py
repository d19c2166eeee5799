"""Products whose operands pass through fast memory once: fast for counting and numbers, literal for an observer.

The literal forms are the definition. The fast forms do the same loads, stores and multiply-adds and need the same
room, in one call instead of a loop over words.

* one operand streams: word by word, through a buffer of one word;
* both stream: for each term of the sum a column of the left (or a row of the right operand, if that is shorter) is
loaded, and the other operand passes word by word.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattention.iocomplexity.memory.ledger import Ledger
from wattention.iocomplexity.memory.observer import Streams, Sums
from wattention.iocomplexity.memory.resident import Resident
from wattention.iocomplexity.memory.selection import ALL, Floats, Selection, Tags
from wattention.iocomplexity.memory.slow import SlowView
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.problem.masks import Bools

Operand = Resident | SlowView


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
    weights: Resident | None = None
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
        as_it_is = self.over.mask.shape == self.left.shape and not self.left.transposed
        return self.over.mask if as_it_is else self.over.mask.T

    def numbers(self) -> Floats:
        """The product."""
        left = _numbers(self.left, self.left_mask())
        if self.weights is not None:
            assert self.weights.values is not None
            left = left * self.weights.values.T
        product = left @ _numbers(self.right, None)
        return product if self.scale == 1.0 else self.scale * product


def _numbers(operand: Operand, mask: Bools | None) -> Floats:
    if isinstance(operand, SlowView):
        if operand.transposed:
            return operand.read(None if mask is None else mask.T).T
        return operand.read(mask)
    assert operand.values is not None
    return operand.values


def _marks(operand: Operand) -> Tags:
    if isinstance(operand, SlowView):
        return operand.tags.T if operand.transposed else operand.tags
    return operand.marks


def _must_be_live(*operands: Operand | None) -> None:
    for operand in operands:
        if isinstance(operand, Resident):
            operand.must_be_live()


# --- into fast memory -------------------------------------------------------------------------------------------------


def add_product(into: Resident, product: Product) -> None:
    """Add a product to a tile."""
    ledger, left, right = into.ledger, product.left, product.right
    fits = into.shape == (left.shape[0], right.shape[1]) and left.shape[1] == right.shape[0]
    assert fits, f"{left.shape} @ {right.shape} -> {into.shape}"
    _must_be_live(into, left, right, product.weights)
    ledger.multiply_adds += product.multiply_adds
    if ledger.observer is not None and not _taken_in_at_once(into, product):
        _add_literally(into, product)
        return
    if isinstance(left, SlowView):
        pairs = product.over
        ledger.crossed(left.array, loads=left.size if pairs is None else left.size // pairs.size * pairs.pairs)
    if isinstance(right, SlowView):
        ledger.crossed(right.array, loads=right.size)
    buffer = stream_buffer(left, right)
    if buffer:
        ledger.room_for(buffer, "streamed operands")
    if ledger.numbers:
        into.add_numbers(product.numbers())


def _taken_in_at_once(into: Resident, product: Product) -> bool:
    """Whether the observer takes a product without masks and weights in one piece."""
    left, right = product.left, product.right
    hidden = [pairs for pairs in (product.onto, product.over) if pairs is not None and pairs.mask is not None]
    if hidden or product.weights is not None:
        return False
    if isinstance(left, SlowView) and isinstance(right, SlowView):
        how: Streams = "columns held" if _holds_columns(left, right) else "rows held"
    elif isinstance(left, SlowView):
        how = "left"
    elif isinstance(right, SlowView):
        how = "right"
    else:
        return False
    assert into.ledger.observer is not None
    return into.ledger.observer.streamed(into.marks, _marks(left), _marks(right), how)


def stream_buffer(left: Operand, right: Operand) -> int:
    """Words of fast memory that streaming takes."""
    column = left.width if isinstance(left, SlowView) else 0
    row = right.width if isinstance(right, SlowView) else 0
    if column and row:
        return row + column * left.shape[0] if _holds_columns(left, right) else column + row * right.shape[1]
    return column + row


def _holds_columns(left: Operand, right: Operand) -> bool:
    """Whether columns of the left operand are held while words of the right one pass."""
    return right.width + left.width * left.shape[0] <= left.width + right.width * right.shape[1]


def _add_literally(into: Resident, product: Product) -> None:
    """The same, one load, one product and one free at a time."""
    left, right, mask = product.left, product.right, product.left_mask()
    onto = None if product.onto is None else product.onto.mask
    streams = isinstance(left, SlowView) or isinstance(right, SlowView)
    if not streams and mask is None:
        _multiply(into, left, right, scale=product.scale, mask=onto)
        return
    ledger = into.ledger
    holds_columns = isinstance(right, SlowView) and (isinstance(left, Resident) or _holds_columns(left, right))
    for step in range(left.shape[1]):
        t = slice(step, step + 1)
        rows = ALL if mask is None else np.flatnonzero(mask[:, step])
        part, part_mask = into.part(rows=rows), None if onto is None else onto[rows]
        if holds_columns or not streams:
            with _Passing(ledger, left, rows, t) as column:
                if product.weights is not None:
                    column.scale_rows(product.weights.part(rows=t))
                for j in _singles(right.shape[1]):
                    with _Passing(ledger, right, t, j) as word:
                        mask_j = None if part_mask is None else part_mask[:, j]
                        _multiply(part.part(columns=j), column, word, scale=product.scale, mask=mask_j)
        else:
            with _Passing(ledger, right, t, ALL) as row:
                if product.weights is not None:
                    row.scale_rows(product.weights.part(rows=t))
                for i in _singles(part.shape[0]):
                    with _Passing(ledger, left, _one_row(rows, i), t) as word:
                        mask_i = None if part_mask is None else part_mask[i]
                        _multiply(part.part(rows=i), word, row, scale=product.scale, mask=mask_i)


def _one_row(rows: Selection, single: slice) -> Selection:
    return single if isinstance(rows, slice) else rows[single]


def _multiply(into: Resident, left: Operand, right: Operand, *, scale: float, mask: Bools | None) -> None:
    assert isinstance(left, Resident)
    assert isinstance(right, Resident)
    assert into.ledger.observer is not None
    into.ledger.observer.product(into.marks, left.marks, right.marks, mask)
    if into.ledger.numbers:
        into.add_numbers(scale * (_numbers(left, None) @ _numbers(right, None)))


class _Passing:
    """Part of an operand, in fast memory for the length of a block: loaded if it streams, a view if it is resident."""

    def __init__(self, ledger: Ledger, operand: Operand, rows: Selection, columns: Selection) -> None:
        self._loaded = isinstance(operand, SlowView)
        part = operand.part(rows, columns)
        self._here = Resident.loaded(ledger, part) if isinstance(part, SlowView) else part

    def __enter__(self) -> Resident:
        return self._here

    def __exit__(self, *_: object) -> None:
        if self._loaded:
            self._here.free()


def _singles(length: int) -> list[slice]:
    return [slice(i, i + 1) for i in range(length)]


def differentiate_softmax(
    tile: Resident,
    probabilities: SlowView,
    delta: Resident,
    *,
    factors: Resident | None,
    over: PairTile,
    scale: float,
) -> None:
    """dP <- scale * P (dP - D), the words of P passing one by one, times the factor of their row."""
    ledger = tile.ledger
    if ledger.observer is None:
        ledger.room_for(probabilities.width, "a streamed probability")
        ledger.crossed(probabilities.array, loads=over.pairs)
        if ledger.numbers:
            values = _numbers(probabilities, over.mask)
            if factors is not None:
                assert factors.values is not None
                values = values * factors.values
            tile.set_score_gradient(values, delta, scale)
        return
    for i in _singles(tile.shape[0]):
        for j in _singles(tile.shape[1]):
            word = tile.part(i, j)
            if over.mask is None or over.mask[i, j][0, 0]:
                with _Passing(ledger, probabilities, i, j) as p:
                    if factors is not None:
                        p.scale_rows(factors.part(rows=i))
                    word.differentiate_softmax(p, delta.part(rows=i), scale)
            elif ledger.numbers:
                word.set_score_gradient(np.zeros((1, 1)), delta.part(rows=i), scale)


# --- into slow memory -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowSum:
    """A part of slow memory that grows by a product, one word at a time."""

    home: SlowView
    fresh: Bools
    """Rows whose sum starts now."""
    decay: Resident | None
    """Factors of the old sum, one a row."""
    remote: bool
    """Slow memory adds by itself."""


def accumulate(ledger: Ledger, target: SlowSum, product: Product) -> None:
    """Replace a part of slow memory by decay * old + product; a column of a streamed right operand is held."""
    home, right = target.home, product.right
    (height, width), depth = home.shape, product.left.shape[1]
    _must_be_live(product.left, right, target.decay)
    assert product.left.shape[0] == height
    assert right.shape == (depth, width)
    ledger.multiply_adds += product.multiply_adds
    if ledger.observer is not None and not _accumulated_at_once(ledger, target, product):
        _accumulate_literally(ledger, target, product)
        return
    buffer = 0
    if isinstance(right, SlowView):
        ledger.crossed(right.array, loads=right.size)
        buffer = right.width * depth
    ledger.room_for(home.width + buffer, f"a word of {home.name}")
    old_rows = height - int(np.count_nonzero(target.fresh))
    ledger.crossed(home.array, loads=0 if target.remote else old_rows * width, stores=height * width)
    if ledger.numbers:
        new = product.numbers()
        if old_rows:
            whole = old_rows == height
            old_part: Selection = ALL if whole else np.flatnonzero(~target.fresh)
            old = (home if whole else home.part(old_part)).read()
            if target.decay is not None:
                assert target.decay.values is not None
                old = old * target.decay.values[old_part]
            new[old_part] += old
        home.write(new)


def _accumulated_at_once(ledger: Ledger, target: SlowSum, product: Product) -> bool:
    """Whether the observer takes an update without masks, all of whose rows are fresh or none, in one piece."""
    hidden = product.over is not None and product.over.mask is not None
    if hidden or target.remote or not (target.fresh.all() or not target.fresh.any()):
        return False
    how = Sums(
        fresh=bool(target.fresh.all()),
        decay=None if target.decay is None else target.decay.marks,
        right_streams=isinstance(product.right, SlowView),
    )
    assert ledger.observer is not None
    return ledger.observer.accumulated(target.home.tags, _marks(product.left), _marks(product.right), how)


def _accumulate_literally(ledger: Ledger, target: SlowSum, product: Product) -> None:
    home, left, mask = target.home, product.left, product.left_mask()
    assert isinstance(left, Resident)
    for j in _singles(home.shape[1]):
        with _Passing(ledger, product.right, ALL, j) as column:
            for i in _singles(home.shape[0]):
                place, starts = home.part(i, j), bool(target.fresh[i.start])
                made = starts or target.remote
                with _word_of_sum(ledger, place, made=made) as word:
                    if target.decay is not None and not starts:
                        word.scale_rows(target.decay.part(rows=i))
                    terms = ALL if mask is None else np.flatnonzero(mask[i.start])
                    _multiply(word, left.part(i, terms), column.part(rows=terms), scale=product.scale, mask=None)
                    word.store(place, add=target.remote and not starts)


def _word_of_sum(ledger: Ledger, place: SlowView, *, made: bool) -> Resident:
    """One word of a sum in slow memory: zero if it starts here, or if slow memory adds; the old value otherwise."""
    if made:
        return Resident.made(ledger, place.name, place.shape, place.array.role, 0.0)
    return Resident.loaded(ledger, place)
