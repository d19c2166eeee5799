"""Run what is missing of one comparison, or of many, and keep every record.

A run is its blocks (the gates stand at the head of the first); a launcher takes them and streams records back, and
each is on disk before anybody hears of it. What a launcher does with several hosts is its own affair. Where later cells
follow from earlier records (a learning rate, a target), the run goes stage by stage, and the next stage's cells are
filled in first (study/decisions.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from wattention.core.records import CellKey, CellKind, CellRecord
from wattention.core.run_spec import CellSpec, RunSpec
from wattention.study.decisions import Undecided, decide
from wattention.study.grid import Block, in_blocks, plan_cells, plan_stages
from wattention.study.interrupts import Interrupts
from wattention.study.launcher import Launcher, Watcher
from wattention.study.scan import scan_run
from wattention.study.store import RunFolder, StoredRun, read_run


def run_comparison(
    folder: RunFolder, spec: RunSpec, launcher: Launcher, watcher: Watcher, *, resume: bool
) -> StoredRun:
    """Run the missing cells of a comparison in its folder; the folder is held alone meanwhile.

    A KeyboardInterrupt is passed on; everything finished is on disk by then.

    Raises:
        UserError: the folder is taken, holds another run, or cannot be written; or some cells could not be run.
    """
    with folder.locked():
        folder.start(spec, resume=resume)
        run_missing({folder.folder: OpenRun.of(folder, spec)}, launcher, watcher)
        return read_run(folder.folder)


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run that is held for writing: its folder, its plan, and what is on disk.

    Args:
        cells: the plan, by key.
        done: keys of the plan that have a record; grows while the run goes on.
        gates: gate records on disk; grows while the run goes on.
    """

    folder: RunFolder
    spec: RunSpec
    cells: Mapping[CellKey, CellSpec]
    done: set[CellKey]
    gates: list[CellRecord]

    @classmethod
    def of(cls, folder: RunFolder, spec: RunSpec) -> OpenRun:
        """Look at what is on disk; records that other machines left in shards are collected first."""
        folder.collect_shards()
        scan = scan_run(folder.folder)
        cells = {cell.key: cell for cell in plan_cells(spec)}
        return cls(
            folder=folder,
            spec=spec,
            cells=cells,
            done={key for key in cells if key in scan.keys},
            gates=list(scan.gates),
        )

    def blocks(self, kinds: Collection[CellKind], watcher: Watcher) -> tuple[Block, ...]:
        """Return what is missing of these kinds, block by block; cells that nothing decides end in records at once."""
        missing = [cell for key, cell in self.cells.items() if key not in self.done and key.kind in kinds]
        if missing and (self.spec.tune is not None or self.spec.target is not None):
            records = read_run(self.folder.folder).records
            decided = [(cell, decide(cell, records)) for cell in missing]
            for cell, found in decided:
                if isinstance(found, Undecided):
                    self.keep(_undecided(cell, found), watcher)
            missing = [found for _, found in decided if isinstance(found, CellSpec)]
        return in_blocks(missing, folder=self.folder.folder, gates=self.gates)

    def keep(self, record: CellRecord, watcher: Watcher) -> None:
        """Put one record on disk, then tell of it.

        A host's own proof beyond the plan is kept and not told of; a second record of a planned cell is dropped.
        """
        if record.key in self.done and record.key.kind != "gate":
            return
        self.folder.append(record)
        if record.key.kind == "gate":
            self.gates.append(record)
        if record.key in self.cells and record.key not in self.done:
            self.done.add(record.key)
            watcher.cell_finished(self.cells[record.key], record)


def run_missing(runs: Mapping[Path, OpenRun], launcher: Launcher, watcher: Watcher) -> None:
    """Launch the missing blocks of all runs together and keep their records as they come."""
    watcher.begin(sum(len(run.cells) for run in runs.values()), sum(len(run.done) for run in runs.values()))
    # runs of one call may differ in their stages; a kind of cell belongs to the same place in all of them
    with Interrupts() as interrupts:
        for stage in dict.fromkeys(stage for run in runs.values() for stage in plan_stages(run.spec)):
            blocks = [block for run in runs.values() for block in run.blocks(stage, watcher)]
            with closing(launcher.launch(blocks, watcher)) as finished:
                for block, record in finished:
                    runs[block.folder].keep(record, watcher)
                    interrupts.raise_if_lost()


def _undecided(cell: CellSpec, why: Undecided) -> CellRecord:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    detail = f"not measured: {why.reason}"
    return CellRecord(key=cell.key, order=cell.order, status=why.status, detail=detail, started_utc=started)
