"""Words each mechanism's algorithm moves in the two-level model, beside what every algorithm of its class must move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.data_movement import Movement, data_movement
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.units import format_reading, format_value
from wattention.report.wording import list_names, times

_COLUMNS = (
    Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
    Column(key="algorithm", heading="algorithm", help="schedule of the two-level model", numeric=False),
    Column(key="moved_words", heading="moved", help="words between fast and slow memory, one layer, forward"),
    Column(key="bound_words", heading="lower bound", help="what every algorithm of its class moves at least"),
)


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where the records do not tell a cache, or no mechanism can be placed."""
    found = data_movement(comparison.spec, records)
    if found is None:
        return None
    placed = {label: one for label, one in found.movements.items() if isinstance(one.moved, Quantity)}
    series = (
        _series("moved by its algorithm", {label: one.moved for label, one in placed.items()}, slot=2),
        _series("lower bound", {label: one.bound for label, one in placed.items()}, slot=0),
    )
    rows = tuple(
        (Cell(content=label), Cell(content=one.algorithm), Cell(content=one.moved), Cell(content=one.bound))
        for label, one in found.movements.items()
    )
    left_out = [label for label in found.movements if label not in placed]
    how = (
        f"The two-level model, not a measurement: M is one core's L2 cache, {format_value(found.cache_bytes, 'byte')} "
        f"or {found.fast_words} words; attention without its projections, one layer, one step, forward, best tiles."
    )
    how += f" Not placed, with reasons in the table: {list_names(left_out)}." if left_out else ""
    return Figure(
        key="data-movement",
        title="Data movement against its lower bound",
        caption=_finding(placed),
        how=how,
        views=(
            View(
                label="",
                x=Axis(title="mechanism"),
                y=Axis(title="words moved", unit="word", zero=True),
                series=series,
            ),
        ),
        table=Table(columns=_COLUMNS, rows=rows),
    )


def _series(name: str, readings: Mapping[str, object], *, slot: int) -> Series:
    numbers = {label: q for label, q in readings.items() if isinstance(q, Quantity)}
    return Series(
        name=name,
        x=tuple(numbers),
        y=tuple(q.value for q in numbers.values()),
        mark="bars",
        slot=slot,
        hover=tuple(f"{label}, {name}: {format_reading(q)}s" for label, q in numbers.items()),
    )


def _finding(placed: Mapping[str, Movement]) -> str:
    ratios: dict[str, list[str]] = {}
    for label, one in placed.items():
        if isinstance(one.moved, Quantity) and isinstance(one.bound, Quantity):
            ratios.setdefault(times(one.moved.value / one.bound.value), []).append(label)
    if not ratios:
        return "No lower bound covers these algorithms."
    parts = [f"{list_names(labels)} {ratio}" for ratio, labels in ratios.items()]
    return f"Over the fewest words that any algorithm of its class could move: {', '.join(parts)}."
