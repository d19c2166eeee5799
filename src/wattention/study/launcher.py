"""What a launcher is: it takes blocks, runs them somewhere, and hands back every record as its cell finishes.

::

    study/run  --blocks-->  launcher  --(block, record), one by one-->  study/run  --> records.jsonl

Three of them: ``local`` (one host, this one), ``on_ray`` and ``on_slurm``. All run the same body of a block
(``study/block.py``), a process a cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattention.core.records import CellRecord
from wattention.core.run_spec import CellSpec
from wattention.study.block import Proofs, proofs_made_here, run_block
from wattention.study.grid import Block

Finished = Generator[tuple[Block, CellRecord], None, None]
"""Records with the block each belongs to. Closing the generator stops what still runs."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A sign of life of a running cell: the phase, how far it is, its speed in training, what it has to say."""

    phase: str
    done: int = 0
    total: int = 0
    text: str = ""
    tokens_per_s: float | None = None


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


class Nobody:
    """A watcher for where nobody looks."""

    def begin(self, cells: int, done: int) -> None:
        """Say nothing."""

    def cell_started(self, cell: CellSpec) -> None:
        """Say nothing."""

    def cell_progress(self, cell: CellSpec, progress: Progress) -> None:
        """Say nothing."""

    def cell_finished(self, cell: CellSpec, record: CellRecord) -> None:
        """Say nothing."""


class Launcher(Protocol):
    """Runs blocks somewhere and returns their records, whatever happens to the cells."""

    def launch(self, blocks: Sequence[Block], watcher: Watcher) -> Finished:
        """Run the blocks, each on one host and one set of devices; yield every record as its cell finishes.

        A record that was yielded is the caller's to keep; the launcher may forget it.

        Raises:
            UserError: after everything that could run has run: a block that could not be finished, and why.
        """


class OneHostLauncher(ABC):
    """Launches blocks one after the other on this host, given a way to run one cell."""

    def __init__(self) -> None:
        self._proofs: dict[Path, Proofs] = {}

    @abstractmethod
    def run(
        self, cell: CellSpec, *, log: Path, on_progress: Callable[[Progress], None], time_limit_s: float | None
    ) -> CellRecord:
        """Run one cell to its record."""

    def launch(self, blocks: Sequence[Block], watcher: Watcher) -> Finished:
        """Run the blocks in order; the next cell starts when the last one's record has been taken."""
        for block in blocks:
            proofs = self._proofs.setdefault(block.folder, proofs_made_here(block.gates))

            def run_cell(cell: CellSpec, logs: Path = block.folder / "logs") -> CellRecord:
                watcher.cell_started(cell)
                return self.run(
                    cell,
                    log=logs / f"{cell.key.kind}-{cell.key.block}.log",
                    on_progress=lambda progress: watcher.cell_progress(cell, progress),
                    time_limit_s=cell.run.time_limit_s,
                )

            for record in run_block(block, run_cell, proofs):
                yield block, record
