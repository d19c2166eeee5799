"""Arrange what would run: points, cells, and what they may take."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellKey
from wattention.core.run_spec import RunSpec
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import format_value
from wattention.study.forecast import Forecast, Forecaster
from wattention.study.grid import plan_cells

SHOWN = 40
"""Points that are listed one by one; the sums are over all."""

_COLUMNS = (
    Column(key="run", heading="run", help="name of the run's folder", numeric=False),
    Column(key="cells", heading="cells", help="cells of the plan, gates included"),
    Column(key="missing", heading="missing", help="cells without a record"),
    Column(key="time", heading="time", help="predicted: all its cells, one after the other"),
    Column(key="energy", heading="energy", help="predicted: the training steps of all its cells"),
)


def plan_document(plans: Sequence[tuple[str, RunSpec, Collection[CellKey]]], forecast: Forecaster) -> Document:
    """Return the plan of runs.

    Args:
        plans: name, specification and the keys that are on disk, for each run.
    """
    cells = missing = 0
    rows: list[tuple[Cell, ...]] = []
    forecasts: list[Forecast] = []
    for name, spec, done in plans:
        keys = [cell.key for cell in plan_cells(spec)]
        left = sum(key not in done for key in keys)
        expected = forecast(spec)
        cells, missing = cells + len(keys), missing + left
        forecasts.append(expected)
        if len(rows) < SHOWN:
            rows.append(_row(name, len(keys), left, expected))
    notes = [_sum_of("time", [f.time_s for f in forecasts]), _sum_of("energy", [f.energy_j for f in forecasts])]
    if len(plans) > SHOWN:
        notes.insert(0, f"The first {SHOWN} of {len(plans)} runs are listed.")
    runs = "1 run" if len(plans) == 1 else f"{len(plans)} runs"
    return Document(
        title="wattention plan",
        answer=f"{runs}, {cells} cells, {missing} of them to run",
        sections=(Section(title="", table=Table(columns=_COLUMNS, rows=tuple(rows)), notes=tuple(notes)),),
    )


def _row(name: str, cells: int, missing: int, forecast: Forecast) -> tuple[Cell, ...]:
    return (
        Cell(content=name),
        Cell(content=str(cells)),
        Cell(content=str(missing)),
        Cell(content=forecast.time_s),
        Cell(content=forecast.energy_j),
    )


def _sum_of(what: str, readings: Sequence[Reading]) -> str:
    known = [reading for reading in readings if isinstance(reading, Quantity)]
    if not known:
        reasons = dict.fromkeys(reading.reason for reading in readings if isinstance(reading, Absent))
        return f"No prediction of {what}: {next(iter(reasons), 'nothing is planned')}."
    total = format_value(sum(reading.value for reading in known), known[0].unit)
    return f"Predicted {what} of all cells, on disk or not: {total}, for {len(known)} of {len(readings)} runs."
