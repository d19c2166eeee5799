"""Live progress of a comparison on stderr: block, cell, phase, step, tokens/s, loss, time left.

On a terminal one line moves; elsewhere every finished cell is one plain line. Finished cells stay on the screen.
"""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from wattention.core.quantities import Absent, Quantity
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import CellSpec
from wattention.report.units import format_value
from wattention.study.launcher import Progress


class ProgressDisplay:
    """Watches a run; see ``study.run.Watcher``. Use it as a context manager."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._progress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} cells"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._total = 0
        self._finished = 0

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, cells: int, done: int) -> None:
        """Show the whole of the run; a run that grows begins again with more cells."""
        grown = self._task is not None
        self._total, self._finished = cells, done
        if self._task is not None:
            self._progress.update(self._task, total=cells, completed=done)
        if done and not grown:
            self._console.print(f"{done} of {cells} cells are on disk already; running the rest", markup=False)
        if self._task is None:
            self._task = self._progress.add_task("starting", total=cells, completed=done)

    def say(self, text: str) -> None:
        """Leave a line on the screen."""
        self._console.print(text, markup=False, soft_wrap=True)

    def cell_started(self, cell: CellSpec) -> None:
        """Name the cell that runs now."""
        self._describe(cell, "")

    def cell_progress(self, cell: CellSpec, progress: Progress) -> None:
        """Show how far the running cell is."""
        counter = f" {progress.done}/{progress.total}" if progress.total else ""
        speed = "" if progress.tokens_per_s is None else f" {format_value(progress.tokens_per_s, 'token/s')}"
        self._describe(cell, f" {progress.phase}{counter}{speed} {progress.text}")
        if self._task is not None and progress.total:
            part = min(0.95, progress.done / progress.total)
            self._progress.update(self._task, completed=self._finished + part)

    def cell_finished(self, cell: CellSpec, record: CellRecord) -> None:
        """Leave one line of what came out."""
        self._finished += 1
        if self._task is not None:
            self._progress.update(self._task, completed=self._finished)
        number = f"[{self._finished}/{self._total}]"
        self._console.print(f"{number} {_where(cell)}: {_outcome(record)}", markup=False, soft_wrap=True)

    def _describe(self, cell: CellSpec, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=f"{_where(cell)}{text}".replace("[", r"\["))


def _where(cell: CellSpec) -> str:
    if cell.key.kind in ("gate", "tune"):
        return f"{cell.key.kind} {cell.key.mechanism}"
    return f"block {cell.key.block + 1}/{cell.run.blocks} {cell.key.kind} {cell.key.mechanism}"


def _outcome(record: CellRecord) -> str:
    if record.status != "ok":
        return f"{record.status.replace('_', ' ')}: {record.detail}"
    if record.key.kind == "gate":
        return f"{len(record.facts.get('gate', {}).get('clauses', ()))} clauses, none failed"
    if record.key.kind == "lengths":
        return f"{len(record.phases)} lengths"
    if record.key.kind == "tune":
        return f"learning rate {record.facts['chosen_learning_rate']:g} chosen"
    if record.key.kind == "target":
        return _target_outcome(record.phases["target"])
    train, evaluate = record.phases["train"].readings, record.phases["evaluate"].readings
    parts = []
    time, tokens = train.get("time_s"), train.get("tokens")
    if isinstance(time, Quantity) and isinstance(tokens, Quantity):
        parts.append(f"{format_value(tokens.value / time.value, 'token/s')}")
    loss = evaluate.get("heldout_bits_per_byte")
    if isinstance(loss, Quantity):
        parts.append(f"{loss.value:.3f} bits/byte held out")
    flags = {flag["kind"] for phase in record.phases.values() for flag in phase.flags}
    return ", ".join(parts) + (f"  (flagged: {', '.join(sorted(flags))})" if flags else "")


def _target_outcome(phase: Phase) -> str:
    tokens, seconds = phase.readings["tokens_to_target"], phase.readings["time_to_target_s"]
    if isinstance(tokens, Quantity) and isinstance(seconds, Quantity):
        return f"reached after {tokens.value:.0f} tokens, {format_value(seconds.value, 's')} of training"
    return tokens.reason if isinstance(tokens, Absent) else "reached"
