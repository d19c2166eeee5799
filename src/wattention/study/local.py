"""Run cells on this machine, one process each, forked from a server that has torch loaded but has run nothing.

The server (Python's own ``forkserver``) costs one import of torch for a whole run instead of one a cell; every cell
still starts from a process that never computed anything. A cell sends progress while it works and its record at the
end; a process that dies without one (killed, out of memory, segmentation fault) leaves a record saying so. A cell
whose launcher died (kill -9) ends at once: nobody would keep its record, and it would disturb the next one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from urllib.parse import quote

from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Status
from wattention.core.run_spec import CellSpec
from wattention.meters.base import SIMULATED
from wattention.study.launcher import OneHostLauncher, Progress

MALLOC_SETTINGS = {
    "default": {},
    "keep": {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TOP_PAD_": str(2**26)},
}
"""glibc settings by name. ``keep`` keeps freed memory in the process, so that a step is not timed while the kernel
zeroes pages it zeroed a step before; ``default`` is glibc as it comes. The same for all mechanisms of a run."""


def available_threads() -> int:
    """CPU cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SPIN_COUNT = 1000
"""How long OpenMP's threads spin at a barrier before they sleep (GOMP_SPINCOUNT). The default spins for milliseconds:
with one busy neighbour on two cores that made a training step 4.0 times slower; this makes it 2.0 times slower, and
costs nothing on a quiet machine (88.9 against 88.6 ms, medians of 20 steps on an AMD EPYC virtual machine)."""


PRELOADED = [
    "wattention.study.local",
    *(f"wattention.lab.cells.{name}" for name in ("run", "gate", "train", "lengths")),
    "torch._dynamo",  # which torch imports when the first optimiser is built, for about a second
]
"""What the server imports once, so that no cell has to."""


Work = Callable[..., CellRecord]
"""Runs one cell in its own process: ``work(cell, progress=...)``; a function that pickles by its name."""


def work_in_laboratory(cell: CellSpec, **options: Any) -> CellRecord:
    """Measure one cell; what every launcher runs unless it is a test."""
    from wattention.lab.cells.run import run_cell

    with meters_of(cell):
        record = run_cell(cell, **options)
    return replace(record, simulated=_is_played(record))


class LocalLauncher(OneHostLauncher):
    """Start cells one after the other on this machine.

    Args:
        threads: CPU threads of each cell.
        malloc: a key of :data:`MALLOC_SETTINGS`.
        work: what a cell's process does.
    """

    def __init__(self, *, threads: int, malloc: str, work: Work = work_in_laboratory) -> None:
        super().__init__()
        self._work = work
        # The server inherits the environment of this process at its start; libraries read these when they load.
        os.environ.update(MALLOC_SETTINGS[malloc])
        os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), GOMP_SPINCOUNT=str(SPIN_COUNT))
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED if work is work_in_laboratory else [work.__module__])

    def run(
        self, cell: CellSpec, *, log: Path, on_progress: Callable[[Progress], None], time_limit_s: float | None
    ) -> CellRecord:
        """Run one cell to its record. Ctrl-C stops the cell's process and is passed on."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_run_in_child, args=(self._work, cell, theirs, str(log)), daemon=True)
        started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        process.start()
        theirs.close()
        try:
            record = _listen(ours, on_progress, time_limit_s)
            if record is _TIME_LIMIT:
                detail = f"stopped after the time limit of {time_limit_s:g} s"
                return failed(cell, "time_limit", detail, started)
            process.join()
            if isinstance(record, CellRecord):
                took_s = time.monotonic() - began  # process and all: what a planner wants to know
                return replace(record, environment={**record.environment, "cell_s": took_s})
            return failed(cell, *death_of(process.exitcode, log), started)
        finally:
            ours.close()
            process.kill()
            process.join()


_TIME_LIMIT = object()


def _listen(pipe: Connection, on_progress: Callable[[Progress], None], time_limit_s: float | None) -> object:
    """Pass progress on until the record comes, the pipe breaks (None) or time is up."""
    end = None if time_limit_s is None else time.monotonic() + time_limit_s
    while True:
        if not pipe.poll(None if end is None else max(0.0, end - time.monotonic())):
            return _TIME_LIMIT
        try:
            message = pipe.recv()
        except EOFError:
            return None
        if isinstance(message, CellRecord):
            return message
        on_progress(message)


def death_of(exit_code: int | None, log: Path) -> tuple[Status, str]:
    """Say what a process died of that left no record."""
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        if exit_code == -signal.SIGKILL:
            return "killed", f"the process was killed ({name}); the system kills what exhausts its memory"
        return "killed", f"the process died of {name}; its output is in {log.name}"
    return "error", f"the process ended with code {exit_code} without a record; its output is in {log.name}"


def failed(cell: CellSpec, status: Status, detail: str, started: str) -> CellRecord:
    """Return the record of a cell whose process left none."""
    from wattention.meters.environment import record_host

    where = {"host": record_host()}
    return CellRecord(
        key=cell.key, order=cell.order, status=status, detail=detail, started_utc=started, environment=where
    )


@contextlib.contextmanager
def meters_of(cell: CellSpec) -> Iterator[None]:
    """Let the cell measure with this machine's meters, recording them or playing a recording where its run says so."""
    from wattention.meters.replay import recording_panels, replayed_panels

    measure, name = cell.run.measure, f"{cell.key.kind}-{quote(cell.key.mechanism, safe='')}-{cell.key.block}"
    with contextlib.ExitStack() as stack:
        if measure.replay_meters is not None:
            stack.enter_context(replayed_panels(measure.replay_meters, name))
        elif measure.record_meters is not None:
            stack.enter_context(recording_panels(measure.record_meters, name))
        yield


def _is_played(record: CellRecord) -> bool:
    """Whether a reading came from a recording; a replayed run has cells, such as gates, that open no meters."""
    readings = (reading for phase in record.phases.values() for reading in phase.readings.values())
    return any(isinstance(reading, Quantity) and reading.source.startswith(SIMULATED) for reading in readings)


def _run_in_child(work: Work, cell: CellSpec, pipe: Connection, log: str) -> None:
    """Body of a cell's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and decides
    threading.Thread(target=die_with_parent, daemon=True).start()
    with output_to(log):
        started = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            record = work(cell, progress=lambda **event: pipe.send(Progress(**event)))
        except BrokenPipeError:
            sys.exit(1)  # the parent is gone, nobody wants the record
        except BaseException as error:
            traceback.print_exc()
            record = failed(cell, "error", f"{type(error).__name__}: {error}", started)
        pipe.send(record)


def die_with_parent() -> None:
    """Sleep in the kernel until the launcher's process is gone, then end this one; costs nothing meanwhile."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def output_to(path: str) -> Iterator[None]:
    """Send everything this process prints, also from C code, to a log file."""
    with Path(path).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield
        sys.stdout.flush()
        sys.stderr.flush()
