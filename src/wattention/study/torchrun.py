"""Run cells under torchrun: rank 0 keeps the records, and every rank runs its share of a training cell in a child.

torchrun starts one process a device. Rank 0 of them is the driver of the comparison; the others wait for cells, which
rank 0 announces on torchrun's own TCP store. A training cell runs in a fresh child of every rank; the children meet in
a process group of their own, and rank 0's child returns the record of all. Gates and single layers need one device and
run on rank 0 alone::

    torchrun -- rank 0 -- child      announce cell k, run, collect endings, record
             -- rank 1 -- child      wait, run, say how it ended
             -- ...                  every second: a sign of life on the store

A collective that misses a rank would wait for its timeout, so the drivers watch: a child that fails is announced, the
others are stopped, and the cell's record names the rank, its host and what happened. The run then goes on. When a
rank's driver itself dies, torchrun stops all of them (SIGTERM); rank 0 writes the cell's record first, and the run can
be resumed. A driver that only falls silent (its machine is lost) is given up after :data:`SILENCE_S`.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import forkserver
from pathlib import Path
from types import FrameType
from typing import Any

from wattention.core.errors import UserError
from wattention.core.records import CellRecord, Status
from wattention.core.run_spec import CellSpec, Parallel, RunSpec
from wattention.study.launcher import OneHostLauncher, Progress
from wattention.study.local import LocalLauncher, failed
from wattention.study.rank_driver import BEAT_S, SILENCE_S, Driver, Ending, ending_of, machine
from wattention.study.world import World

GRACE_S = 30.0
"""How long the other ranks have to say how they ended, once rank 0 has; they do so at once unless they are lost."""
_CAUSES: tuple[Status, ...] = ("killed", "out_of_memory", "diverged", "unsupported", "time_limit", "error")
"""What a failure of several ranks is called after: a dead rank breaks the others' connections, not the reverse."""


class TerminatedError(BaseException):
    """torchrun stops this process: a rank is gone, or somebody stopped torchrun."""


class RankLauncher(Driver, OneHostLauncher):
    """Rank 0's launcher: training cells on all ranks, the others here.

    Args:
        world: this process's place; it must be rank 0.
        run: the specification, which the other ranks are told.
        local: runs what needs one rank only.
    """

    def __init__(self, world: World, run: RunSpec, local: LocalLauncher) -> None:
        assert world.rank == 0, "the other ranks serve"
        Driver.__init__(self, world)
        OneHostLauncher.__init__(self)
        self._local = local
        self._mode: Parallel = run.parallel
        self._number = 0
        self._lost = ""
        self._terminated = self._interruptible = self._stopped = False
        self._beats_seen: dict[int, tuple[str, float]] = {}
        self._looked = self._awake_s = 0.0
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self._store.set("run", run.model_dump_json())
        seats = [self.heard(f"seat/{rank}", SILENCE_S) for rank in range(world.size)]
        absent = [rank for rank, seat in enumerate(seats) if seat is None]
        if absent:
            raise UserError("ranks that never started", got=f"no sign of rank {absent[0]} in {SILENCE_S:g} s")
        self._seats: list[dict[str, Any]] = [json.loads(seat) for seat in seats if seat is not None]

    def run(
        self, cell: CellSpec, *, log: Path, on_progress: Callable[[Progress], None], time_limit_s: float | None
    ) -> CellRecord:
        """Run one cell to its record, on as many ranks as it needs.

        Raises:
            UserError: an earlier cell lost a rank for good.
            KeyboardInterrupt: torchrun was stopped; the cell has no record.
        """
        if self._lost:
            raise UserError(
                "the run cannot go on without all its ranks", got=self._lost, do="start it again with --resume"
            )
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._interruptible = True
        try:
            if self._terminated:
                raise TerminatedError
            if cell.key.kind != "train":
                return self._local.run(cell, log=log, on_progress=on_progress, time_limit_s=time_limit_s)
            return self._run_on_all(cell, log, on_progress, time_limit_s)
        except TerminatedError:
            self._lost = self._missing_rank()
            if not self._lost:
                self._stopped = True
                raise KeyboardInterrupt from None
            return failed(cell, "killed", self._lost, started)
        except KeyboardInterrupt:
            self._stopped = True
            raise
        finally:
            self._interruptible = False

    def close(self) -> None:
        """Send the other ranks home; they may need the store for it, which rank 0 perhaps serves."""
        self._store.set("cell/end", "")
        if not self._lost and not self._stopped:
            for rank in range(1, self.world.size):
                self.heard(f"left/{rank}", GRACE_S)

    def _run_on_all(
        self, cell: CellSpec, log: Path, on_progress: Callable[[Progress], None], time_limit_s: float | None
    ) -> CellRecord:
        self._number += 1
        number = self._number
        order = {"cell": cell.model_dump_json(), "log": str(log.absolute())}
        self._store.set(f"cell/{number}", json.dumps(order))
        end = None if time_limit_s is None else time.monotonic() + time_limit_s
        self._beats_seen.clear()

        def check() -> Ending | None:
            if end is not None and time.monotonic() >= end:
                return Ending(status="time_limit", detail=f"stopped after the time limit of {time_limit_s:g} s")
            silent = self._silent_rank()
            if silent:
                self._lost = silent
                return Ending(status="killed", detail=silent)
            return None

        record = self.take_part(number, cell, str(log), on_progress, check)
        return self._judge(number, record)

    def _judge(self, number: int, record: CellRecord) -> CellRecord:
        """Return rank 0's record if all ranks ended well, else one that names the rank that failed first."""
        endings = {0: ending_of(record)}
        until = time.monotonic() + GRACE_S
        for rank in range(1, self.world.size):
            words = self.heard(f"{number}/ended/{rank}", max(0.1, until - time.monotonic()))
            lost = Ending(status="killed", detail="its driver did not say how it ended")
            endings[rank] = lost if words is None else Ending(**json.loads(words))
        unwell = {rank: ending for rank, ending in endings.items() if ending.status != "ok"}
        if not unwell or record.status == "time_limit" or self._lost:
            return record
        rank = min(unwell, key=lambda one: (_rank_of_cause(unwell[one]), one))
        ending = unwell[rank]
        facts = {"parallel": {"mode": self._mode, "ranks": self.world.size, "failed_rank": rank}}
        detail = f"rank {rank} on {self._seats[rank]['host']}: {ending.detail}"
        return replace(record, status=ending.status, detail=detail, phases={}, facts=facts)

    def _silent_rank(self) -> str:
        """Name a rank whose driver has given no sign of life for too long, by the time this process was awake."""
        now = self._awake_s = self._awake_s + min(time.monotonic() - self._looked, BEAT_S)
        self._looked = time.monotonic()
        for rank in range(1, self.world.size):
            key = f"beat/{rank}"
            beat = self._store.get(key).decode() if self._store.check([key]) else ""
            last, since = self._beats_seen.setdefault(rank, (beat, now))
            if beat != last:
                self._beats_seen[rank] = (beat, now)
            elif now - since > SILENCE_S:
                return f"rank {rank} on {self._seats[rank]['host']} gave no sign of life for {SILENCE_S:g} s"
        return ""

    def _missing_rank(self) -> str:
        """Name a rank whose driver died: on this machine by its process, elsewhere by its silence."""
        import psutil

        for rank, seat in enumerate(self._seats):
            if seat["machine"] == machine() and not _is_alive(psutil, seat["pid"]):
                return f"rank {rank} on {seat['host']}: its process {seat['pid']} died, and torchrun stopped the others"
        return ""

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True
        if self._interruptible:  # a record that is being written is finished first
            raise TerminatedError


class _Follower(Driver):
    """A rank that waits for cells."""

    def work(self) -> None:
        """Run this rank's part of every training cell until rank 0 sends it home."""
        words = None
        while words is None:
            words = self.heard("run", SILENCE_S)
        run = RunSpec.model_validate_json(words)
        LocalLauncher(threads=run.threads, malloc=run.malloc)  # settings of the server that children are forked from
        forkserver.ensure_running()  # it loads torch while rank 0 still proves mechanisms
        number = 1
        while (order := self._next_order(number)) is not None:
            cell = CellSpec.model_validate_json(order["cell"])
            log = Path(f"{order['log']}.rank{self.world.rank}")
            if not log.parent.is_dir():  # another machine, which does not see the run's folder
                log = Path(tempfile.gettempdir()) / log.name
            self.take_part(number, cell, str(log), lambda progress: None, lambda: None)
            number += 1
        self._store.set(f"left/{self.world.rank}", "")

    def _next_order(self, number: int) -> dict[str, str] | None:
        """Wait for the next cell; None at the end."""
        while True:
            words = self.heard(f"cell/{number}", BEAT_S)
            if words is not None:
                return dict(json.loads(words))
            if self._store.check(["cell/end"]):
                return None


def serve(world: World) -> None:
    """Run this rank's part of every training cell until rank 0 sends it home.

    Raises:
        UserError: the store of torchrun is gone.
        SystemExit: Ctrl-C, without a traceback: rank 0 says what happened.
    """
    from torch.distributed import DistNetworkError

    try:
        _Follower(world).work()
    except DistNetworkError as error:
        raise UserError(f"rank {world.rank} lost torchrun's store", got=str(error).splitlines()[0]) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _rank_of_cause(ending: Ending) -> tuple[int, bool]:
    stopped = ending.detail.startswith("stopped, because")
    return (_CAUSES.index(ending.status) if ending.status in _CAUSES else len(_CAUSES), stopped)


def _is_alive(psutil: Any, pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
