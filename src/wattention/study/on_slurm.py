"""Run blocks as a Slurm array through submitit: a task a block, a process a cell, records in shards on the shared disk.

Every attempt at a block appends to a shard of its own (see ``study/store.py``): one writer, no lock, each record
flushed before the next cell starts. So what survives does not depend on this process: kill it, log out, let a node
die, let the filesystem stall, and the records are in the shards; the next ``--resume`` (or ``wattention report``)
reads them. Tasks that still run then are waited for, and their blocks not submitted twice. A task that Slurm requeues
(preemption, time limit) goes on with the cells that none of its block's shards holds.
"""

from __future__ import annotations

import importlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError, unknown_name
from wattention.core.records import CellKey
from wattention.study.grid import Block
from wattention.study.launcher import Finished, Nobody, Watcher
from wattention.study.local import LocalLauncher, Work, work_in_laboratory
from wattention.study.store import Reader, append_record, shard_paths

POLL_S = 2.0
SETTINGS = {
    "time": "minutes one block may take  [60]",
    "partition": "Slurm partition",
    "account": "account to charge",
    "qos": "quality of service",
    "constraint": "features a node must have, e.g. a100",
    "mem_gb": "memory of one block",
    "exclusive": "true or false: a node for one block alone  [true on CPUs, false on GPUs]",
    "parallel": "blocks that may run at the same time  [256]",
    "requeues": "times a block may be requeued after its time limit  [3]",
    "setup": "shell command before Python, e.g. module load cuda",
    "cluster": "local rehearses on this machine, without Slurm  [slurm]",
}
"""What ``--slurm KEY=VALUE`` takes."""


def slurm_settings(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings with their defaults.

    Raises:
        UserError: an unknown key, or a value that is no number where one is wanted.
    """
    for key in given:
        if key not in SETTINGS:
            raise unknown_name("setting of Slurm", key, SETTINGS)
    out: dict[str, Any] = {"time": "60", "parallel": "256", "requeues": "3", "cluster": "slurm"}
    out |= given
    for key in ("time", "mem_gb", "parallel", "requeues"):
        if key in out:
            if not str(out[key]).isdigit():
                raise UserError(f"--slurm {key} cannot be read", got=out[key], wanted="a whole number")
            out[key] = int(out[key])
    if out["cluster"] not in ("slurm", "local"):
        raise UserError("--slurm cluster cannot be read", got=out["cluster"], wanted="slurm or local")
    if out.get("exclusive", "true") not in ("true", "false"):
        raise UserError("--slurm exclusive cannot be read", got=out["exclusive"], wanted="true or false")
    return out


class SlurmLauncher:
    """Submits blocks as one array job and brings their records home.

    Args:
        settings: as :func:`slurm_settings` returns them.
        work: what a cell's process does.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        work: Work = work_in_laboratory,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings, self._work, self._sleep = settings, work, sleep

    def launch(self, blocks: Sequence[Block], watcher: Watcher) -> Finished:
        """Submit the blocks that no living task runs, and yield records from the shards until all tasks have ended.

        Closing the generator (Ctrl-C) cancels the tasks; killing this process does not.

        Raises:
            UserError: submitit or Slurm is missing; or a task ended with cells missing.
        """
        if not blocks:
            return
        ledger = _Ledger(job_folder(blocks), self._settings["cluster"])
        living = ledger.living()
        fresh = [block for block in blocks if _name(block) not in living]
        jobs = dict(living)
        if fresh:
            executor = self._executor(ledger.folder, fresh)
            tasks = [BlockTask(block, self._work) for block in fresh]
            with executor.batch():
                submitted = [executor.submit(task) for task in tasks]
            jobs |= {_name(block): job for block, job in zip(fresh, submitted, strict=True)}
            ledger.note({_name(block): job.job_id for block, job in zip(fresh, submitted, strict=True)})
        with _cancelled_on_exit(jobs.values()):
            yield from self._collect(blocks, jobs)
        raise_if_missing(blocks, jobs)

    def script(self, blocks: Sequence[Block], folder: Path) -> str:
        """Return the sbatch script that the blocks would be submitted with; nothing is written or asked of Slurm."""
        _submitit()
        words = {"name": "job_name", "timeout_min": "time", "mem_gb": "mem"}
        parameters = {words.get(k, k.removeprefix("slurm_")): v for k, v in self._parameters(blocks).items()}
        if "mem" in parameters:
            parameters["mem"] = f"{parameters['mem']}GB"
        slurm: Any = importlib.import_module("submitit.slurm.slurm")
        command = f"python -u -m submitit.core._submit {folder}"
        return str(slurm._make_sbatch_string(command=command, folder=folder, map_count=len(blocks), **parameters))

    def _parameters(self, blocks: Sequence[Block]) -> dict[str, Any]:
        run, chosen = blocks[0].cells[0].run, self._settings
        cuda = run.device.startswith("cuda")
        parameters = {
            "name": "wattention",
            "timeout_min": chosen["time"],
            "cpus_per_task": run.threads,
            "gpus_per_node": 1 if cuda else None,
            "mem_gb": chosen.get("mem_gb"),
            "slurm_array_parallelism": chosen["parallel"],
            "slurm_exclusive": True if chosen.get("exclusive", "false" if cuda else "true") == "true" else None,
            "slurm_setup": [chosen["setup"]] if "setup" in chosen else None,
            **{f"slurm_{key}": chosen.get(key) for key in ("partition", "account", "qos", "constraint")},
        }
        return {key: value for key, value in parameters.items() if value is not None}

    def _executor(self, folder: Path, blocks: Sequence[Block]) -> Any:
        parameters, submitit = self._parameters(blocks), _submitit()
        try:
            executor = submitit.AutoExecutor(
                folder=folder, cluster=self._settings["cluster"], slurm_max_num_timeout=self._settings["requeues"]
            )
        except RuntimeError as error:
            raise UserError(
                "cannot submit to Slurm",
                got=str(error).splitlines()[0],
                do="run this on a login node, print the script with --dry-run, or rehearse with --slurm cluster=local",
            ) from error
        executor.update_parameters(**parameters)
        return executor

    def _collect(self, blocks: Sequence[Block], jobs: Mapping[str, Any]) -> Finished:
        """Yield what is new in the shards, until a look after the end of all tasks finds nothing more."""
        by_place = {(block.folder, block.number): block for block in blocks}
        folders = dict.fromkeys(block.folder for block in blocks)
        sizes: dict[Path, int] = {}
        seen: set[tuple[Path, CellKey]] = set()
        while True:
            ended = all(job.done() for job in jobs.values())
            for folder in folders:
                for path in shard_paths(folder):
                    block, size = by_place.get((folder, int(path.name[:6]))), path.stat().st_size
                    if block is None or sizes.get(path) == size:
                        continue
                    sizes[path] = size
                    for record in Reader().read(path):
                        if (folder, record.key) not in seen and record not in block.gates:
                            seen.add((folder, record.key))
                            yield block, record
            if ended:
                return
            self._sleep(POLL_S)


class BlockTask:
    """What one task of the array does; submitit pickles it, and again when Slurm requeues it."""

    def __init__(self, block: Block, work: Work) -> None:
        self.block, self.work = replace(block, folder=block.folder.resolve()), work

    def __call__(self) -> int:
        """Run the cells that no shard of this block holds yet; return how many records were written."""
        folder, reader = self.block.folder, Reader()
        found = [r for path in shard_paths(folder, self.block.number) for r in reader.read(path)]
        block = self.block.without(found)
        if not block.cells:
            return 0
        run = block.cells[0].run
        launcher = LocalLauncher(threads=run.threads, malloc=run.malloc, work=self.work)
        shard = folder / "shards" / f"{block.number:06d}-{uuid.uuid4().hex}.jsonl"
        shard.parent.mkdir(exist_ok=True)
        count = 0
        for _, record in launcher.launch([block], Nobody()):
            append_record(shard, record, resume=f"--resume --out {folder}")
            count += 1
        return count

    def checkpoint(self) -> Any:
        """Called by submitit before Slurm ends the task: go on in another one."""
        return _submitit().helpers.DelayedSubmission(self)


class _Ledger:
    """Which task runs which block, on disk, for a driver that comes later.

    Args:
        folder: where submitit keeps its own files, too.
    """

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder, self._cluster = folder, cluster
        self._path = folder / f"{cluster}-jobs.jsonl"

    def note(self, jobs: Mapping[str, str]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(jobs) + "\n")

    def living(self) -> dict[str, Any]:
        """Return the tasks of earlier drivers that have not ended, by block."""
        if not self._path.exists():
            return {}
        ids: dict[str, str] = {}
        for line in self._path.read_text().splitlines():
            ids |= json.loads(line)
        jobs = {name: self._job(job_id) for name, job_id in ids.items()}
        return {name: job for name, job in jobs.items() if not job.done()}

    def _job(self, job_id: str) -> Any:
        if self._cluster == "local":
            return _LocalTask(job_id)
        _submitit()
        return importlib.import_module("submitit.slurm.slurm").SlurmJob(self.folder, job_id)


class _LocalTask:
    """A task of the rehearsal that another driver started: submitit knows only its own."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id

    def done(self) -> bool:
        psutil: Any = importlib.import_module("psutil")
        try:
            words = psutil.Process(int(self.job_id)).cmdline()
        except psutil.Error:
            return True
        return "submitit.local._local" not in words

    def cancel(self, check: bool = True) -> None:
        psutil: Any = importlib.import_module("psutil")
        if not self.done():
            psutil.Process(int(self.job_id)).terminate()


@contextmanager
def _cancelled_on_exit(jobs: Any) -> Iterator[None]:
    """Cancel what still runs when the body is left early."""
    try:
        yield
    except BaseException:
        for job in jobs:
            job.cancel(check=False)
        raise


def raise_if_missing(blocks: Sequence[Block], jobs: Mapping[str, Any]) -> None:
    """Say which tasks ended without their cells.

    Raises:
        UserError: some did.
    """
    short = []
    for block in blocks:
        reader = Reader()
        rest = block.without(r for path in shard_paths(block.folder, block.number) for r in reader.read(path))
        if rest.cells:
            short.append(rest)
    if short:
        job = jobs[_name(short[0])]
        raise UserError(
            f"{len(short)} tasks ended early, {sum(len(block.cells) for block in short)} cells are missing",
            got=f"block {short[0].number} of {short[0].folder}, job {job.job_id}",
            do="read the job's .err file in the folder slurm of the run, then go on with --resume",
        )


def job_folder(blocks: Sequence[Block]) -> Path:
    """Return where submitit keeps its files: in the run, or hidden beside the runs of a sweep."""
    folder = blocks[0].folder.resolve()
    alone = all(block.folder == blocks[0].folder for block in blocks)
    return folder / "slurm" if alone else folder.parent / ".slurm"


def _name(block: Block) -> str:
    return f"{block.folder.name}/{block.number}"


def _submitit() -> Any:
    try:
        return importlib.import_module("submitit")
    except ImportError as error:
        raise UserError(
            "the Slurm launcher needs submitit",
            got=str(error),
            do="pip install 'wattention[slurm]', or use --launcher local",
        ) from None
