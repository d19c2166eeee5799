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
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from wattention.core.errors import UserError
from wattention.core.records import CellRecord, Status
from wattention.core.run_spec import CellSpec, Parallel, RunSpec
from wattention.study.launcher import OneHostLauncher, Progress
from wattention.study.local import LocalLauncher, death_of, failed, output_to

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

    from wattention.lab.parallel import Meeting

POLL_S = 0.2
"""How often a driver looks whether another rank has failed, and torchrun's own patience (its monitor's interval)."""
BEAT_S = 1.0
SILENCE_S = 30.0
"""A driver that gave no sign of life for so long is taken for lost; it beats once a second, whatever its child does."""
GRACE_S = 30.0
"""How long the other ranks have to say how they ended, once rank 0 has; they do so at once unless they are lost."""
STOP_S = 2.5
"""How long a rank may go on once another has failed: enough to learn what its own child makes of it."""
LEAVE_S = 10.0
"""How long a child that has said everything may take to end."""
COLLECTIVE_TIMEOUT_S = 1800.0
"""After which a collective gives up by itself; ranks that die are noticed within a second, by their drivers."""

_CAUSES: tuple[Status, ...] = ("killed", "out_of_memory", "diverged", "unsupported", "time_limit", "error")
"""What a failure of several ranks is called after: a dead rank breaks the others' connections, not the reverse."""


@dataclass(frozen=True, kw_only=True)
class World:
    """This process's place under torchrun, from its environment."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    port: int
    served: bool
    """Whether torchrun itself serves the store; else rank 0 does."""
    attempt: str
    """torchrun's run and how often it restarted it."""


def find_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """Return this process's place under torchrun, or None outside of it."""
    if "TORCHELASTIC_RUN_ID" not in environment:
        return None
    return World(
        rank=int(environment["RANK"]),
        size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment["LOCAL_RANK"]),
        local_size=int(environment["LOCAL_WORLD_SIZE"]),
        host=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
        served=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=f"{environment['TORCHELASTIC_RUN_ID']}/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}",
    )


def choose_parallel(asked: str | None, world: World | None) -> dict[str, Any]:
    """Return the fields of a run that say how it is spread: what was asked for, else ddp under torchrun.

    Raises:
        UserError: several devices were asked for outside torchrun, or none under it.
    """
    if world is None:
        if asked not in (None, "none"):
            raise UserError(
                "several devices for one model are started by torchrun",
                got=f"--parallel {asked} in one process",
                do=f"torchrun --nproc-per-node N -m wattention compare --parallel {asked} ...",
            )
        return {}
    if asked == "none" and world.size > 1:
        raise UserError(
            "ranks without work",
            got=f"--parallel none under torchrun with {world.size} ranks",
            wanted="ddp, fsdp, context",
        )
    return {"parallel": asked or "ddp", "ranks": world.size}


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """How one rank's child ended."""

    status: Status
    detail: str


class _Terminated(BaseException):
    """torchrun stops this process: a rank is gone, or somebody stopped torchrun."""


class _Driver:
    """What the drivers of all ranks have in common: the store, and one child a cell."""

    def __init__(self, world: World) -> None:
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

        self.world = world
        plain = TCPStore(
            world.host,
            world.port,
            is_master=world.rank == 0 and not world.served,
            wait_for_workers=False,
            timeout=timedelta(seconds=SILENCE_S),
        )
        self._store: Store = PrefixStore(f"wattention/{world.attempt}", plain)
        self._beats = 0
        self._next_beat = 0.0
        self._store.set(f"seat/{world.rank}", json.dumps({"machine": _machine(), "host": _host(), "pid": os.getpid()}))

    def _meeting(self, number: int, cell: CellSpec) -> Meeting:
        from wattention.lab.parallel import Meeting

        limit_s = cell.run.time_limit_s
        return Meeting(
            mode=cell.run.parallel,
            rank=self.world.rank,
            size=self.world.size,
            local_rank=self.world.local_rank,
            host=self.world.host,
            port=self.world.port,
            name=f"wattention/{self.world.attempt}/cell/{number}",
            timeout_s=min(limit_s or COLLECTIVE_TIMEOUT_S, COLLECTIVE_TIMEOUT_S),
        )

    def _take_part(
        self,
        number: int,
        cell: CellSpec,
        log: str,
        on_progress: Callable[[Progress], None],
        check: Callable[[], _Ending | None],
    ) -> CellRecord:
        """Run this rank's child of a cell to its record and tell the others how it ended."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run_child, args=(cell, self._meeting(number, cell), theirs, log), daemon=True)
        process.start()
        theirs.close()
        try:
            heard = self._listen(number, ours, on_progress, check)
            if isinstance(heard, CellRecord):
                record = heard
            elif isinstance(heard, _Ending):
                record = failed(cell, heard.status, heard.detail, started)
            else:
                process.join()
                record = failed(cell, *death_of(process.exitcode, Path(log)), started)
            self._store.set(f"{number}/ended/{self.world.rank}", json.dumps(asdict(_ending(record))))
            if record.status == "ok":
                process.join(LEAVE_S)
            else:
                self._store.set(f"{number}/failed", str(self.world.rank))
        finally:
            ours.close()
            process.kill()
            process.join()
        return record

    def _listen(
        self,
        number: int,
        pipe: Connection,
        on_progress: Callable[[Progress], None],
        check: Callable[[], _Ending | None],
    ) -> CellRecord | _Ending | None:
        """Pass progress on until the child's record, its end (None), or a reason to stop it."""
        stop_at = float("inf")
        while True:
            if pipe.poll(POLL_S):
                try:
                    message = pipe.recv()
                except EOFError:
                    return None
                if isinstance(message, CellRecord):
                    return message
                on_progress(message)
            self._beat()
            reason = check()
            if reason is not None:
                return reason
            if stop_at == float("inf") and self._store.check([f"{number}/failed"]):
                stop_at = time.monotonic() + STOP_S
            if time.monotonic() >= stop_at:
                return _Ending(status="error", detail="stopped, because another rank failed")

    def _beat(self) -> None:
        """Give a sign of life."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_S
        self._beats += 1
        self._store.set(f"beat/{self.world.rank}", str(self._beats))

    def _heard(self, key: str, seconds: float) -> str | None:
        """Return a value of the store, waiting for it up to so long; None when it does not come.

        Asks again and again: the store's own wait prints a warning for every time-out. Counts its own waking time, so
        that a machine which was paused as a whole blames nobody.
        """
        for _ in range(max(1, round(2 * seconds / POLL_S))):
            if self._store.check([key]):
                return self._store.get(key).decode()
            time.sleep(POLL_S / 2)
        return None


class RankLauncher(_Driver, OneHostLauncher):
    """Rank 0's launcher: training cells on all ranks, the others here.

    Args:
        world: this process's place; it must be rank 0.
        run: the specification, which the other ranks are told.
        local: runs what needs one rank only.
    """

    def __init__(self, world: World, run: RunSpec, local: LocalLauncher) -> None:
        assert world.rank == 0, "the other ranks serve"
        _Driver.__init__(self, world)
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
        seats = [self._heard(f"seat/{rank}", SILENCE_S) for rank in range(world.size)]
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
                raise _Terminated
            if cell.key.kind != "train":
                return self._local.run(cell, log=log, on_progress=on_progress, time_limit_s=time_limit_s)
            return self._run_on_all(cell, log, on_progress, time_limit_s)
        except _Terminated:
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
                self._heard(f"left/{rank}", GRACE_S)

    def _run_on_all(
        self, cell: CellSpec, log: Path, on_progress: Callable[[Progress], None], time_limit_s: float | None
    ) -> CellRecord:
        self._number += 1
        number = self._number
        order = {"cell": cell.model_dump_json(), "log": str(log.absolute())}
        self._store.set(f"cell/{number}", json.dumps(order))
        end = None if time_limit_s is None else time.monotonic() + time_limit_s
        self._beats_seen.clear()

        def check() -> _Ending | None:
            if end is not None and time.monotonic() >= end:
                return _Ending(status="time_limit", detail=f"stopped after the time limit of {time_limit_s:g} s")
            silent = self._silent_rank()
            if silent:
                self._lost = silent
                return _Ending(status="killed", detail=silent)
            return None

        record = self._take_part(number, cell, str(log), on_progress, check)
        return self._judge(number, record)

    def _judge(self, number: int, record: CellRecord) -> CellRecord:
        """Return rank 0's record if all ranks ended well, else one that names the rank that failed first."""
        endings = {0: _ending(record)}
        until = time.monotonic() + GRACE_S
        for rank in range(1, self.world.size):
            words = self._heard(f"{number}/ended/{rank}", max(0.1, until - time.monotonic()))
            lost = _Ending(status="killed", detail="its driver did not say how it ended")
            endings[rank] = lost if words is None else _Ending(**json.loads(words))
        failed = {rank: ending for rank, ending in endings.items() if ending.status != "ok"}
        if not failed or record.status == "time_limit" or self._lost:
            return record
        rank = min(failed, key=lambda one: (_rank_of_cause(failed[one]), one))
        ending = failed[rank]
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
            if seat["machine"] == _machine() and not _is_alive(psutil, seat["pid"]):
                return f"rank {rank} on {seat['host']}: its process {seat['pid']} died, and torchrun stopped the others"
        return ""

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._terminated = True
        if self._interruptible:  # a record that is being written is finished first
            raise _Terminated


class _Follower(_Driver):
    """A rank that waits for cells."""

    def work(self) -> None:
        """Run this rank's part of every training cell until rank 0 sends it home."""
        words = None
        while words is None:
            words = self._heard("run", SILENCE_S)
        run = RunSpec.model_validate_json(words)
        LocalLauncher(threads=run.threads, malloc=run.malloc)  # settings of the server that children are forked from
        forkserver.ensure_running()  # it loads torch while rank 0 still proves mechanisms
        number = 1
        while (order := self._next_order(number)) is not None:
            cell = CellSpec.model_validate_json(order["cell"])
            log = Path(f"{order['log']}.rank{self.world.rank}")
            if not log.parent.is_dir():  # another machine, which does not see the run's folder
                log = Path(tempfile.gettempdir()) / log.name
            self._take_part(number, cell, str(log), lambda progress: None, lambda: None)
            number += 1
        self._store.set(f"left/{self.world.rank}", "")

    def _next_order(self, number: int) -> dict[str, str] | None:
        """Wait for the next cell; None at the end."""
        while True:
            words = self._heard(f"cell/{number}", BEAT_S)
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


def _run_child(cell: CellSpec, meeting: Meeting, pipe: Connection, log: str) -> None:
    """Body of one rank's process of a cell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver hears it and decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with output_to(log):
        started = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            from torch import distributed

            from wattention.lab.cell import run_cell
            from wattention.lab.parallel import join

            device = meeting.device(cell.run.device)
            spread = join(meeting, device)
            mine = cell.replace(run=cell.run.replace(device=device))
            record = run_cell(mine, progress=lambda **event: pipe.send(Progress(**event)), spread=spread)
        except BrokenPipeError:
            sys.exit(1)
        except BaseException as error:
            traceback.print_exc()
            record = failed(cell, "error", f"{type(error).__name__}: {error}", started)
        pipe.send(record)
        if record.status == "ok":
            distributed.destroy_process_group()


def _end_with_driver() -> None:
    """Sleep until the driver is gone, then end this process: in a collective it would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _ending(record: CellRecord) -> _Ending:
    return _Ending(status=record.status, detail=record.detail)


def _rank_of_cause(ending: _Ending) -> tuple[int, bool]:
    stopped = ending.detail.startswith("stopped, because")
    return (_CAUSES.index(ending.status) if ending.status in _CAUSES else len(_CAUSES), stopped)


def _is_alive(psutil: Any, pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _machine() -> str:
    from wattention.lab.parallel import machine_id

    return machine_id()


def _host() -> str:
    import socket

    return socket.gethostname()
