"""A run on disk: ``run.json`` (what was asked) and ``records.jsonl`` (what came out), appended and never rewritten.

Each record is written whole, flushed and synced before the next cell starts. A line that could not be written whole
(full disk) is cut off again, so what lies on disk is always a prefix of complete records; a line half-written by a
machine that died is reported by number when read, and the rest is used.

Machines that share a filesystem with the driver but not its lock (a Slurm array) never write into that file: each
attempt at a block appends to a *shard* of its own, ``shards/<block>-<unique>.jsonl``, which has one writer and needs
no lock (locks, and appends from several hosts, are not to be relied on over NFS). The driver copies new records over.

One cell, one record, decided when read: the first record of a key counts, in the order of ``records.jsonl`` and then
of the shards that nobody has collected yet, by name. Clocks have no say. What repeats a key with other content is
reported like a damaged line, and kept.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from wattention.core.errors import UserError
from wattention.core.records import CellKey, CellRecord, record_from_json
from wattention.core.run_spec import RunSpec

SWEEP_LOCK = ".sweep.lock"
"""Held in the folder above the runs while a sweep writes into them."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A line of the records that does not count: it cannot be read, or repeats a cell."""

    line: int
    reason: str
    file: str = "records.jsonl"
    repeat: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """What a run folder holds: its specification, its records in order, and the lines that are damaged."""

    folder: Path
    spec: RunSpec
    records: tuple[CellRecord, ...]
    damage: tuple[Damage, ...]


class RunFolder:
    """One run's folder, open for appending by one process at a time.

    Args:
        folder: created with its parents when missing.

    Raises:
        UserError: the folder cannot be created or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "logs").mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(
                "cannot write the run folder", got=f"{folder}: {error.strerror}", do="choose another with --out DIR"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder alone; a second run in the same folder is refused.

        Raises:
            UserError: another process runs in the folder.
        """
        with hold_alone(self.folder, "run.lock"):
            yield

    def start(self, spec: RunSpec, *, resume: bool) -> None:
        """Write the specification of a new run, or check that a resumed one asks for the same.

        A resumed run may ask for more blocks, and say otherwise when it is decided; the stored specification follows.

        Raises:
            UserError: the folder holds a run already and ``resume`` is off, or the specification differs.
        """
        path = self.folder / "run.json"
        if not path.exists():
            write_whole(path, spec.model_dump_json(indent=2) + "\n")
            return
        if not resume:
            raise UserError(
                "the folder holds a run already",
                got=self.folder,
                do="continue it with --resume, or choose another folder with --out DIR",
            )
        stored = read_spec(self.folder)
        grown = _grow(stored, spec)
        if grown == stored:
            return
        if _without_growth(stored) != _without_growth(spec) or spec.blocks < stored.blocks:
            now = spec.replace(grown_from=stored.grown_from)
            raise UserError(
                "a run resumes only under the specification it was started with",
                got="; ".join(_differences(stored.model_dump(), now.model_dump())),
                wanted="the same specification, or more blocks",
                do="drop the changed options, or start a new run with --out DIR",
            )
        write_whole(path, grown.model_dump_json(indent=2) + "\n")

    def append(self, record: CellRecord) -> None:
        """Append one record, whole or not at all.

        Raises:
            UserError: the disk is full or the file cannot be written; earlier records are intact.
        """
        append_record(self.folder / "records.jsonl", record, resume=f"--resume --out {self.folder}")

    def collect_shards(self) -> None:
        """Copy the records of all shards that have no record here yet; the shards stay as they are.

        Raises:
            UserError: the records cannot be written.
        """
        shards = shard_paths(self.folder)
        if shards:
            here, reader = self.folder / "records.jsonl", Reader()
            for _ in reader.read(here):
                pass
            for path in shards:
                for record in reader.read(path):
                    append_record(here, record, resume=f"--resume --out {self.folder}")


@contextmanager
def hold_alone(folder: Path, name: str) -> Iterator[None]:
    """Hold a folder's lock of this name, or refuse.

    Raises:
        UserError: another process holds it, or the folder cannot be written.
    """
    lock = FileLock(folder / name, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            "another run is writing into this folder",
            got=folder,
            do="wait for it, or choose another folder with --out DIR",
        ) from None
    except OSError as error:
        raise UserError("cannot write the run folder", got=f"{folder}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def append_record(path: Path, record: CellRecord, *, resume: str) -> None:
    """Append one record to a file of records, whole or not at all, and wait until the disk has it.

    Raises:
        UserError: the disk is full or the file cannot be written; earlier records are intact.
    """
    line = (json.dumps(record.to_json(), allow_nan=False, separators=(",", ":")) + "\n").encode()
    descriptor = _open_for_append(path)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # a half line left by a machine that died must not swallow this record
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, size)
            raise UserError(
                f"cannot write the record of {record.key}",
                got=f"{path}: {error.strerror}",
                do=f"free some space, then continue with {resume}",
            ) from error
    finally:
        os.close(descriptor)


def shard_paths(folder: Path, block: int | None = None) -> list[Path]:
    """Return the shards of a run, or of one block of it, by name."""
    return sorted((folder / "shards").glob("*.jsonl" if block is None else f"{block:06d}-*.jsonl"))


class Reader:
    """Reads files of records one after the other, line by line; the first record of a key counts."""

    def __init__(self) -> None:
        self.damage: list[Damage] = []
        self._contents: dict[CellKey, int] = {}

    def read(self, path: Path) -> Iterator[CellRecord]:
        """Yield the records that count; the other lines are noted, but for copies of a record that counts."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return
        with file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    record = self._record(path.name, number, line.rstrip(b"\n"))
                    if record is not None:
                        yield record

    def _record(self, name: str, number: int, line: bytes) -> CellRecord | None:
        try:
            record = record_from_json(json.loads(line))
        except (UserError, ValueError) as error:
            reason = error.what if isinstance(error, UserError) else "not complete JSON"
            self.damage.append(Damage(line=number, reason=reason, file=name))
            return None
        content = zlib.crc32(line)
        first = self._contents.get(record.key)
        if first is None:
            self._contents[record.key] = content
            return record
        if first != content:
            reason = f"repeats {record.key}; the first record of a cell counts"
            self.damage.append(Damage(line=number, reason=reason, file=name, repeat=True))
        return None


def _grow(stored: RunSpec, spec: RunSpec) -> RunSpec:
    """What is asked for now, with the number of blocks the run was started with where it has grown since."""
    grown_from = stored.grown_from or (stored.blocks if spec.blocks > stored.blocks else None)
    return spec.replace(grown_from=grown_from)


def _without_growth(spec: RunSpec) -> RunSpec:
    return spec.replace(blocks=1, decide=None, grown_from=None)


def read_run(folder: Path) -> StoredRun:
    """Read a run folder: one record a cell; lines that do not count are reported by number.

    Raises:
        UserError: the folder is not a run.
    """
    spec, reader = read_spec(folder), Reader()
    paths = (folder / "records.jsonl", *shard_paths(folder))
    records = tuple(record for path in paths for record in reader.read(path))
    return StoredRun(folder=folder, spec=spec, records=records, damage=tuple(reader.damage))


def read_spec(folder: Path) -> RunSpec:
    """Read the specification a run was started with.

    Raises:
        UserError: there is none, or it does not validate.
    """
    path = folder / "run.json"
    try:
        return RunSpec.model_validate_json(path.read_text())
    except FileNotFoundError:
        raise UserError(
            "not a run folder", got=folder, wanted="a folder with run.json", do="see wattention list"
        ) from None
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise UserError("cannot read the run's specification", got=f"{path}: {first}") from error


def list_run_folders(root: Path) -> tuple[Path, ...]:
    """Return the run folders below ``root``, oldest first."""
    found = [path.parent for path in root.glob("*/run.json")] if root.is_dir() else []
    return tuple(sorted(found, key=lambda folder: (folder / "run.json").stat().st_mtime))


def newest_run(root: Path) -> Path:
    """Return the run folder below ``root`` that was started last.

    Raises:
        UserError: there is none.
    """
    folders = list_run_folders(root)
    if not folders:
        raise UserError("no run to resume", got=root, wanted="a folder of runs", do="name the run's folder with --out")
    return folders[-1]


def _open_for_append(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise UserError("cannot write the records", got=f"{path}: {error.strerror}") from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is either complete or absent."""
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError("cannot write the run folder", got=f"{path}: {error.strerror}") from error


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    out: list[str] = []
    for key, was in old.items():
        now = new[key]
        if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
            out += _differences(was, now, f"{prefix}{key}.")
        elif was != now:
            out.append(f"{prefix}{key} was {was!r}, now {now!r}")
    return out
