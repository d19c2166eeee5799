"""Follow a run that another process writes: read what is new, and notice when nobody writes any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from wattention.core.errors import UserError
from wattention.study.grid import missing_cells, plan_cells
from wattention.study.launcher import Watcher
from wattention.study.store import SWEEP_LOCK, read_run

POLL_S = 1.0
LOOK_FOR_WRITER_EVERY = 5
"""Polls without news between two looks at the lock: looking holds it for an instant, so it is done seldom."""

End = Literal["finished", "stopped"]


def follow_run(folder: Path, watcher: Watcher, *, sleep: Callable[[float], None] = time.sleep) -> End:
    """Tell a watcher what happens in a run folder until all cells are on disk, or nobody writes into it any more.

    Raises:
        UserError: the folder is not a run, or its lock cannot be looked at.
    """
    run = read_run(folder)
    cells = {cell.key: cell for cell in plan_cells(run.spec)}
    seen = {record.key for record in run.records}
    watcher.begin(len(cells), len(seen & cells.keys()))
    quiet = LOOK_FOR_WRITER_EVERY
    while True:
        missing = missing_cells(run.spec, seen)
        # a run that adds blocks until its pairs are decided goes on for as long as somebody writes it
        if not missing and (run.spec.decide is None or not _is_written(folder)):
            return "finished"
        if missing:
            watcher.cell_started(missing[0])
        if quiet >= LOOK_FOR_WRITER_EVERY:
            if not _is_written(folder) and len(read_run(folder).records) == len(seen):
                return "stopped"
            quiet = 0
        sleep(POLL_S)
        run = read_run(folder)
        cells = {cell.key: cell for cell in plan_cells(run.spec)}
        news = [record for record in run.records if record.key not in seen]  # shards may be collected in between
        quiet = 0 if news else quiet + 1
        for record in news:
            if record.key in cells:
                watcher.cell_finished(cells[record.key], record)
        seen.update(record.key for record in news)


def _is_written(folder: Path) -> bool:
    """Whether a process holds the run, or the sweep it is a point of."""
    return _is_held(folder / "run.lock") or _is_held(folder.parent / SWEEP_LOCK)


def _is_held(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        FileLock(path, timeout=0).acquire().lock.release()
    except Timeout:
        return True
    except OSError as error:
        raise UserError("cannot look at the run's lock", got=f"{path}: {error.strerror}") from error
    return False
