"""What the drivers of all ranks have in common: torchrun's store, a sign of life every second, and one child a cell."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from wattention.core.records import CellRecord, Status
from wattention.core.run_spec import CellSpec
from wattention.study.launcher import Progress
from wattention.study.local import death_of, die_with_parent, failed, output_to
from wattention.study.world import World

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

    from wattention.lab.parallel.meeting import Meeting

POLL_S = 0.2
"""How often a driver looks whether another rank has failed, and torchrun's own patience (its monitor's interval)."""
BEAT_S = 1.0
SILENCE_S = 30.0
"""A driver that gave no sign of life for so long is taken for lost; it beats once a second, whatever its child does."""
STOP_S = 2.5
"""How long a rank may go on once another has failed: enough to learn what its own child makes of it."""
LEAVE_S = 10.0
"""How long a child that has said everything may take to end."""
COLLECTIVE_TIMEOUT_S = 1800.0
"""After which a collective gives up by itself; ranks that die are noticed within a second, by their drivers."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one rank's child ended."""

    status: Status
    detail: str


class Driver:
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
        self._store.set(
            f"seat/{world.rank}", json.dumps({"machine": machine(), "host": socket.gethostname(), "pid": os.getpid()})
        )

    def _meeting(self, number: int, cell: CellSpec) -> Meeting:
        from wattention.lab.parallel.meeting import Meeting

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

    def take_part(
        self,
        number: int,
        cell: CellSpec,
        log: str,
        on_progress: Callable[[Progress], None],
        check: Callable[[], Ending | None],
    ) -> CellRecord:
        """Run this rank's child of a cell to its record and tell the others how it ended."""
        started = datetime.now(UTC).isoformat(timespec="seconds")
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=run_child, args=(cell, self._meeting(number, cell), theirs, log), daemon=True)
        process.start()
        theirs.close()
        try:
            heard = self._listen(number, ours, on_progress, check)
            if isinstance(heard, CellRecord):
                record = heard
            elif isinstance(heard, Ending):
                record = failed(cell, heard.status, heard.detail, started)
            else:
                process.join()
                record = failed(cell, *death_of(process.exitcode, Path(log)), started)
            self._store.set(f"{number}/ended/{self.world.rank}", json.dumps(asdict(ending_of(record))))
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
        check: Callable[[], Ending | None],
    ) -> CellRecord | Ending | None:
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
                return Ending(status="error", detail="stopped, because another rank failed")

    def _beat(self) -> None:
        """Give a sign of life."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_S
        self._beats += 1
        self._store.set(f"beat/{self.world.rank}", str(self._beats))

    def heard(self, key: str, seconds: float) -> str | None:
        """Return a value of the store, waiting for it up to so long; None when it does not come.

        Asks again and again: the store's own wait prints a warning for every time-out. Counts its own waking time, so
        that a machine which was paused as a whole blames nobody.
        """
        for _ in range(max(1, round(2 * seconds / POLL_S))):
            if self._store.check([key]):
                return self._store.get(key).decode()
            time.sleep(POLL_S / 2)
        return None


def run_child(cell: CellSpec, meeting: Meeting, pipe: Connection, log: str) -> None:
    """Body of one rank's process of a cell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver hears it and decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=die_with_parent, daemon=True).start()
    with output_to(log):
        started = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            from torch import distributed

            from wattention.lab.cells.run import run_cell
            from wattention.lab.parallel.join import join

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


def ending_of(record: CellRecord) -> Ending:
    """How a cell ended, by its record."""
    return Ending(status=record.status, detail=record.detail)


def machine() -> str:
    """The name of this machine that no other one has."""
    from wattention.lab.parallel.ranks import machine_id

    return machine_id()
