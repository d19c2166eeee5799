"""Arrange the runs of a folder as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.study.grid import plan_cells
from wattention.study.store import StoredRun

_COLUMNS = (
    Column(key="run", heading="run", help="name of the folder", numeric=False),
    Column(key="cells", heading="cells on disk", help="records written of cells planned"),
    Column(key="failed", heading="not ok", help="cells that ended in a failure"),
    Column(key="started", heading="started (UTC)", help="start of the first cell", numeric=False),
    Column(key="mechanisms", heading="mechanisms", help="what is compared", numeric=False),
)


def run_list_document(runs: Sequence[StoredRun], *, root: Path) -> Document:
    """Return the document of all runs below ``root``, oldest first."""
    answer = f"{len(runs)} runs in {root}" if runs else f"no runs in {root}; start one with: wattention compare"
    table = Table(columns=_COLUMNS, rows=tuple(_row(run) for run in runs))
    return Document(title="wattention runs", answer=answer, sections=(Section(title="", table=table),) if runs else ())


def _row(run: StoredRun) -> tuple[Cell, ...]:
    planned = {cell.key for cell in plan_cells(run.spec)}
    cells = planned & {record.key for record in run.records}
    failed = sum(record.status != "ok" for record in run.records)
    return (
        Cell(content=run.folder.name),
        Cell(content=f"{len(cells)}/{len(planned)}"),
        Cell(content=str(failed), alarm=failed > 0),
        Cell(content=run.records[0].started_utc[:19].replace("T", " ") if run.records else "-"),
        Cell(content=", ".join(choice.label for choice in run.spec.mechanisms)),
    )
