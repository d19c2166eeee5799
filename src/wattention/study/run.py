"""Run what is missing of one comparison, or of many, and keep every record.

A run is its blocks (the gates stand at the head of the first); a launcher takes them and streams records back, and
each is on disk before anybody hears of it. What a launcher does with several hosts is its own affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from wattention.core.records import CellKey, CellRecord
from wattention.core.run_spec import CellSpec, RunSpec
from wattention.study.grid import Block, plan_blocks, plan_cells
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
        gates: gate records on disk.
    """

    folder: RunFolder
    spec: RunSpec
    cells: Mapping[CellKey, CellSpec]
    done: set[CellKey]
    gates: tuple[CellRecord, ...]

    @classmethod
    def of(cls, folder: RunFolder, spec: RunSpec) -> OpenRun:
        """Look at what is on disk; records that other machines left in shards are collected first."""
        folder.collect_shards()
        scan = scan_run(folder.folder)
        cells = {cell.key: cell for cell in plan_cells(spec)}
        return cls(
            folder=folder, spec=spec, cells=cells, done={key for key in cells if key in scan.keys}, gates=scan.gates
        )

    def blocks(self) -> tuple[Block, ...]:
        """Return what is missing, block by block."""
        return plan_blocks(self.spec, self.done, folder=self.folder.folder, gates=self.gates)

    def keep(self, record: CellRecord, watcher: Watcher) -> None:
        """Put one record on disk, then tell of it.

        A host's own proof beyond the plan is kept and not told of; a second record of a planned cell is dropped.
        """
        if record.key in self.done and record.key.kind != "gate":
            return
        self.folder.append(record)
        if record.key in self.cells and record.key not in self.done:
            self.done.add(record.key)
            watcher.cell_finished(self.cells[record.key], record)


def run_missing(runs: Mapping[Path, OpenRun], launcher: Launcher, watcher: Watcher) -> None:
    """Launch the missing blocks of all runs together and keep their records as they come."""
    blocks = [block for run in runs.values() for block in run.blocks()]
    watcher.begin(sum(len(run.cells) for run in runs.values()), sum(len(run.done) for run in runs.values()))
    with closing(launcher.launch(blocks, watcher)) as finished:
        for block, record in finished:
            runs[block.folder].keep(record, watcher)
