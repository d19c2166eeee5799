"""Run blocks on a Ray cluster: a task a block, a process a cell inside it, records streamed back as cells finish.

Ray does the queueing, the placing by resources, the transport and the detection of dead workers and nodes. A block is
a generator task (``num_returns="streaming"``): each record travels to the driver when its cell ends, and what the
driver has is on its disk. A block whose worker or node dies is submitted again with the cells that have no record yet.
That is done here and not by Ray's ``max_retries``, because Ray replays a generator from its first item and expects the
same items again; an attempt at other cells is another task. A block is given up after :data:`MAX_RETRIES` further
attempts in a row that brought no record.

Every attempt has a fresh worker process (``max_calls=1``), so that threads, malloc settings and the server of cells are
those of its own run. Nodes need the same wattention, torch and Ray; nothing else is shared, no filesystem either.
"""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError
from wattention.core.records import CellRecord
from wattention.study.grid import Block
from wattention.study.launcher import Finished, Nobody, Watcher
from wattention.study.local import LocalLauncher, Work, work_in_laboratory
from wattention.study.ray_session import ray_session

MAX_RETRIES = 3
IN_FLIGHT = 2048
"""Blocks handed to Ray at a time; the rest wait here, so that a grid of any size costs Ray a bounded memory."""


class RayLauncher:
    """Launches blocks on a cluster, or on a local one that is started for it.

    Args:
        address: of a cluster, as ``ray.init`` takes it; None starts a local one.
        resources: amounts a block claims (``CPU``, ``GPU``, custom ones), beside or instead of what its run asks for.
        labels: labels that the node of a block must have.
        work: what a cell's process does.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        work: Work = work_in_laboratory,
    ) -> None:
        self._address, self._work = address, work
        self._resources, self._labels = dict(resources or {}), dict(labels or {})

    def launch(self, blocks: Sequence[Block], watcher: Watcher) -> Finished:
        """Run the blocks wherever Ray places them; yield records in the order in which they arrive.

        Raises:
            UserError: no such cluster; or, after everything else, a block that could not be finished.
        """
        if not blocks:
            return
        with ray_session(self._address, self._claims(blocks)) as ray:
            with _Attempts.of(ray, blocks, submit=self._submit) as attempts:
                yield from attempts.records(watcher)
            attempts.raise_failures()

    def _claims(self, blocks: Sequence[Block]) -> list[dict[str, float]]:
        """Distinct claims of the blocks, for the check that a local cluster can ever serve them."""
        found = {tuple(sorted(self.claim(block).items())): self.claim(block) for block in blocks}
        return list(found.values())

    def claim(self, block: Block) -> dict[str, float]:
        """Return what one block claims: its run's threads as CPUs and one GPU for CUDA, unless told otherwise."""
        run = block.cells[0].run
        return {"CPU": run.threads, "GPU": float(run.device.startswith("cuda")), **self._resources}

    def _submit(self, ray: Any, block: Block) -> Any:
        claim = self.claim(block)
        task = ray.remote(max_calls=1)(_block_task).options(
            num_returns="streaming",
            num_cpus=claim.pop("CPU"),
            num_gpus=claim.pop("GPU"),
            resources=claim or None,
            label_selector=self._labels or None,
            max_retries=0,
            name=f"block {block.number} of {block.folder.name}",
        )
        return task.remote(block, self._work)


def _block_task(block: Block, work: Work) -> Iterator[CellRecord]:
    """Body of the task, on whatever host Ray chose."""
    run = block.cells[0].run
    # multiprocessing imports the main program again in every process it starts; here that is Ray's worker, and a
    # quarter of a second and all of Ray in each cell's process
    sys.modules["__main__"].__file__ = None
    launcher = LocalLauncher(threads=run.threads, malloc=run.malloc, work=work)
    with tempfile.TemporaryDirectory(prefix="wattention-") as folder:
        (Path(folder) / "logs").mkdir()
        for _, record in launcher.launch([replace(block, folder=Path(folder))], Nobody()):
            yield _with_log(record, Path(folder) / "logs")


LOG_BYTES = 4000
"""What a record keeps of the output of a cell that failed on another machine."""


def _with_log(record: CellRecord, logs: Path) -> CellRecord:
    """Let the end of a failed cell's output travel with its record: the file stays on a machine that may be gone."""
    log = logs / f"{record.key.kind}-{record.key.block}.log"
    if record.status == "ok" or not log.exists():
        return record
    return replace(record, facts={**record.facts, "output": log.read_bytes()[-LOG_BYTES:].decode(errors="replace")})


@dataclass(kw_only=True)
class _Attempt:
    """One submission of a block: what it was given, what came back, how it broke."""

    block: Block
    barren: int
    """Attempts in a row, up to this one, that brought no record of the plan."""
    done: list[CellRecord] = field(default_factory=list)
    error: BaseException | None = None


class _Attempts:
    """All submissions of a launch: those in flight, by their generator, and the blocks that wait."""

    def __init__(self, ray: Any, blocks: Sequence[Block], submit: Any) -> None:
        self._ray, self._submit = ray, submit
        self._waiting = deque(_Attempt(block=block, barren=0) for block in blocks)
        self._running: dict[Any, _Attempt] = {}
        self._failures: list[tuple[Block, str]] = []

    @classmethod
    @contextmanager
    def of(cls, ray: Any, blocks: Sequence[Block], *, submit: Any) -> Iterator[_Attempts]:
        """Open the submissions; whatever ends them, nothing of theirs runs on."""
        attempts = cls(ray, blocks, submit)
        try:
            yield attempts
        finally:
            for stream in attempts._running:
                ray.cancel(stream, force=True)

    def records(self, watcher: Watcher) -> Finished:
        """Yield records until nothing is left to run."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < IN_FLIGHT:
                attempt = self._waiting.popleft()
                self._running[self._submit(self._ray, attempt.block)] = attempt
                watcher.cell_started(attempt.block.cells[0])
            ready, _ = self._ray.wait(list(self._running), num_returns=1, fetch_local=False)
            for stream in ready:
                record = self._take(stream)
                if record is not None:
                    yield self._running[stream].block, record

    def _take(self, stream: Any) -> CellRecord | None:
        """Take the next record of a stream that has one, or see it end."""
        attempt = self._running[stream]
        try:
            record: CellRecord = self._ray.get(next(stream))
        except StopIteration:
            del self._running[stream]
            self._close(attempt)
            return None
        except self._ray.exceptions.RayError as error:  # the stream ends after it
            attempt.error = error
            return None
        attempt.done.append(record)
        return record

    def _close(self, attempt: _Attempt) -> None:
        """Forget an attempt that finished its block; submit the rest of one that did not."""
        rest = attempt.block.without(attempt.done)
        if not rest.cells:
            return
        barren = attempt.barren + 1 if len(rest.cells) == len(attempt.block.cells) else 0
        own_fault = isinstance(attempt.error, self._ray.exceptions.RayTaskError)
        if own_fault or barren > MAX_RETRIES:
            self._failures.append((rest, _words(attempt.error)))
        else:
            self._waiting.append(_Attempt(block=rest, barren=barren))

    def raise_failures(self) -> None:
        """Say which blocks could not be finished, if any."""
        if self._failures:
            block, why = self._failures[0]
            cells = sum(len(rest.cells) for rest, _ in self._failures)
            raise UserError(
                f"{len(self._failures)} blocks could not be finished, {cells} cells are missing",
                got=f"block {block.number} of {block.folder}: {why}",
                do=f"go on with --resume; a block is given up after {MAX_RETRIES + 1} attempts that brought no record",
            )


def _words(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines() or [""]
    kind = type(error).__name__ if error is not None else "its worker ended early"
    return f"{kind}: {lines[-1] if kind.startswith('RayTaskError') else lines[0]}"
