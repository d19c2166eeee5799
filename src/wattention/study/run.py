"""Run what is missing of a comparison, one cell after the other, and keep every record.

The gate of a mechanism comes before its first timing; a mechanism that fails is refused, and each of its other cells
ends in a record that names the clauses. What earlier records decide of a cell, its learning rate and its target, is
filled in just before it starts (study/decisions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from wattention.core.records import CellRecord, Status
from wattention.core.run_spec import CellSpec, RunSpec
from wattention.study.decisions import Undecided, decide
from wattention.study.grid import missing_cells, plan_cells
from wattention.study.local import Progress
from wattention.study.store import RunFolder, StoredRun, read_run


class Launcher(Protocol):
    """Runs one cell somewhere and returns its record, whatever happens to it."""

    def run(
        self, cell: CellSpec, *, log: Path, on_progress: Callable[[Progress], None], time_limit_s: float | None
    ) -> CellRecord:
        """Run one cell to its record."""


class Watcher(Protocol):
    """Hears what happens; a progress display, or nobody."""

    def begin(self, cells: int, done: int) -> None:
        """So many cells are planned, so many are on disk already."""

    def cell_started(self, cell: CellSpec) -> None:
        """A cell begins."""

    def cell_progress(self, cell: CellSpec, progress: Progress) -> None:
        """A sign of life of the running cell."""

    def cell_finished(self, cell: CellSpec, record: CellRecord) -> None:
        """The cell's record is on disk."""


def run_comparison(
    folder: RunFolder, spec: RunSpec, launcher: Launcher, watcher: Watcher, *, resume: bool
) -> StoredRun:
    """Run the missing cells of a comparison in its folder; the folder is held alone meanwhile.

    A KeyboardInterrupt is passed on; everything finished is on disk by then.

    Raises:
        UserError: the folder is taken, holds another run, or cannot be written.
    """
    with folder.locked():
        folder.start(spec, resume=resume)
        done = list(read_run(folder.folder).records)
        refused = {r.key.mechanism: r for r in done if r.key.kind == "gate" and r.status != "ok"}
        missing = missing_cells(spec, {record.key for record in done})
        total = len(plan_cells(spec))
        watcher.begin(total, total - len(missing))
        for cell in missing:
            record = _run_or_refuse(cell, folder, launcher, watcher, refused, done)
            folder.append(record)
            done.append(record)
            watcher.cell_finished(cell, record)
            if cell.key.kind == "gate" and record.status != "ok":
                refused[cell.key.mechanism] = record
        return read_run(folder.folder)


def _run_or_refuse(
    cell: CellSpec,
    folder: RunFolder,
    launcher: Launcher,
    watcher: Watcher,
    refused: Mapping[str, CellRecord],
    done: Sequence[CellRecord],
) -> CellRecord:
    watcher.cell_started(cell)
    gate = refused.get(cell.key.mechanism)
    if gate is not None:
        return _refusal(cell, gate.status, f"not measured, because its gate ended so: {gate.detail}")
    decided = decide(cell, done)
    if isinstance(decided, Undecided):
        return _refusal(cell, decided.status, f"not measured: {decided.reason}")
    return launcher.run(
        decided,
        log=folder.folder / "logs" / f"{cell.key.kind}-{cell.key.block}.log",
        on_progress=lambda progress: watcher.cell_progress(cell, progress),
        time_limit_s=cell.run.time_limit_s,
    )


def _refusal(cell: CellSpec, status: Status, detail: str) -> CellRecord:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return CellRecord(key=cell.key, order=cell.order, status=status, detail=detail, started_utc=started)
