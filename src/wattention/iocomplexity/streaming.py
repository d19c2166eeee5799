"""Products whose operands pass through fast memory once: fast for counting and numbers, literal for an observer.

The literal forms are the definition. The fast forms do the same loads, stores, multiply-adds and need the same room, in one
call instead of a loop over words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wattention.iocomplexity.masks import Bools
from wattention.iocomplexity.problem import PairTile
from wattention.iocomplexity.tile import Floats, Selection, SlowView, Tile, narrow, span

if TYPE_CHECKING:
    from wattention.iocomplexity.machine import Machine

Operand = Tile | SlowView


def terms(products: int, pairs: PairTile | None) -> int:
    """Multiply-adds of a product with ``products`` of them, of which only those of unmasked pairs are done."""
    return products if pairs is None else products // (pairs.height * pairs.width) * pairs.pairs


# --- into fast memory -------------------------------------------------------------------------------------------------


def add_product(machine: Machine, into: Tile, left: Operand, right: Operand, scale: float, onto: Bools | None) -> None:
    """into += scale * left @ right, streaming what is named by a :class:`SlowView`."""
    if machine.observer is not None:
        _add_literally(machine, into, left, right, scale, onto)
        return
    buffer = 0
    if isinstance(left, SlowView):
        buffer += machine.count_stream(left) * (left.shape[0] if isinstance(right, SlowView) else 1)
    if isinstance(right, SlowView):
        buffer += machine.count_stream(right) * (right.shape[1] if isinstance(left, SlowView) else 1)
    if buffer:
        machine.room_for(buffer, "streamed operands")
    if machine.numbers:
        product = _numbers(machine, left) @ _numbers(machine, right)
        into.add_numbers(product if scale == 1.0 else scale * product)


def _numbers(machine: Machine, operand: Operand) -> Floats:
    if isinstance(operand, SlowView):
        values = machine.read(operand.name, operand.rows, operand.columns)
        return values.T if operand.transposed else values
    assert operand.values is not None
    return operand.values


def _add_literally(
    machine: Machine, into: Tile, left: Operand, right: Operand, scale: float, onto: Bools | None
) -> None:
    """The same, one load, one product and one free at a time."""
    if isinstance(left, Tile) and isinstance(right, Tile):
        assert machine.observer is not None
        assert into.tags is not None
        assert left.tags is not None
        assert right.tags is not None
        machine.observer.product(into.tags, left.tags, right.tags, onto)
        if machine.numbers:
            into.add_numbers(scale * (_numbers(machine, left) @ _numbers(machine, right)))
        return
    for step in range(left.shape[1]):
        t = slice(step, step + 1)
        if isinstance(left, SlowView) and isinstance(right, SlowView):
            with load_view(machine, left, slice(None), t) as column, load_view(machine, right, t, slice(None)) as row:
                _add_literally(machine, into, column, row, scale, onto)
        elif isinstance(right, SlowView):
            for j in _singles(right.shape[1]):
                with load_view(machine, right, t, j) as word:
                    mask = None if onto is None else onto[:, j]
                    _add_literally(machine, into.part(columns=j), left.part(columns=t), word, scale, mask)
        else:
            assert isinstance(left, SlowView)
            for i in _singles(left.shape[0]):
                with load_view(machine, left, i, t) as word:
                    mask = None if onto is None else onto[i, :]
                    _add_literally(machine, into.part(rows=i), word, right.part(rows=t), scale, mask)


def load_view(machine: Machine, view: SlowView, rows: slice, columns: slice) -> Tile:
    """Load a part of a streamed operand, turned the way it is used."""
    if view.transposed:
        return machine.load(view.name, narrow(view.rows, columns), narrow(view.columns, rows), turned=True)
    return machine.load(view.name, narrow(view.rows, rows), narrow(view.columns, columns))


def _singles(length: int) -> list[slice]:
    return [slice(i, i + 1) for i in range(length)]


# --- into slow memory -------------------------------------------------------------------------------------------------


def accumulate(
    machine: Machine,
    name: str,
    rows: Selection,
    columns: Selection,
    left: Tile,
    right: Operand,
    *,
    fresh: Bools,
    decay: Tile | None,
    remote: bool,
    scale: float,
) -> None:
    """slow[rows, columns] = decay * slow[rows, columns] + scale * left @ right, one word of the sum at a time."""
    if machine.observer is not None:
        _accumulate_literally(machine, name, rows, columns, left, right, fresh, decay, remote, scale)
        return
    height, width = span(rows), span(columns)
    buffer = machine.count_stream(right) * right.shape[0] if isinstance(right, SlowView) else 0
    machine.room_for(machine.width_of(name) + buffer, f"a word of {name}")
    old_rows = height - int(np.count_nonzero(fresh))
    machine.count_traffic(name, loads=0 if remote else old_rows * width, stores=height * width)
    if machine.numbers:
        new = scale * (_numbers(machine, left) @ _numbers(machine, right))
        if old_rows:
            old_part = slice(None) if old_rows == height else np.flatnonzero(~fresh)
            old = machine.read(name, narrow(rows, old_part), columns)
            if decay is not None:
                assert decay.values is not None
                old = old * decay.values[old_part]
            new[old_part] += old
        machine.write(name, rows, columns, new)


def _accumulate_literally(
    machine: Machine,
    name: str,
    rows: Selection,
    columns: Selection,
    left: Tile,
    right: Operand,
    fresh: Bools,
    decay: Tile | None,
    remote: bool,
    scale: float,
) -> None:
    for j in _singles(span(columns)):
        if isinstance(right, SlowView):
            with load_view(machine, right, slice(None), j) as column:
                _accumulate_column(machine, name, rows, narrow(columns, j), left, column, fresh, decay, remote, scale)
        else:
            part = right.part(columns=j)
            _accumulate_column(machine, name, rows, narrow(columns, j), left, part, fresh, decay, remote, scale)


def _accumulate_column(
    machine: Machine,
    name: str,
    rows: Selection,
    column: Selection,
    left: Tile,
    right: Tile,
    fresh: Bools,
    decay: Tile | None,
    remote: bool,
    scale: float,
) -> None:
    for i in _singles(span(rows)):
        row = narrow(rows, i)
        starts = bool(fresh[i.start])
        word = machine.fresh_word(name) if starts or remote else machine.load(name, row, column)
        with word:
            if decay is not None and not starts:
                word.scale_rows(decay.part(rows=i))
            _add_literally(machine, word, left.part(rows=i), right, scale, None)
            machine.store(word, name, row, column, add=remote and not starts)
