"""What is on disk, without holding it in memory: which cells have a record, and the gates.

A small file of records is read line by line. A large one (:data:`LARGE_BYTES`) has an index beside it where pyarrow is
installed: columns of keys and places, one Parquet file for every :data:`CHUNK_BYTES` of complete lines. The JSON lines
stay the source of truth: the index only ever follows them, is checked against them by the last bytes it covers, and
may be deleted at any time. Parsing is C++ and skips what is not asked for; memory is one chunk and the columns.
"""

from __future__ import annotations

import importlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError
from wattention.core.records import SCHEMA, CellKey, CellKind, CellRecord, record_from_json
from wattention.study.store import Reader, shard_paths

Table = Any
"""A pyarrow.Table; pyarrow has no types."""

LARGE_BYTES = 64 * 2**20
CHUNK_BYTES = 64 * 2**20
MARK_BYTES = 256
"""Bytes before the end of a part whose checksum ties it to the file it was made from."""

PART = re.compile(r"part-(\d+)-(\d+)-([0-9a-f]{8})\.parquet")
COLUMNS = ("kind", "mechanism", "block", "status", "line", "offset", "length")


class KeySet(Set[CellKey]):
    """A set of keys in a tenth of the memory of their objects: numbers of blocks, by kind and mechanism."""

    def __init__(self, keys: Iterable[CellKey] = ()) -> None:
        self._blocks: dict[tuple[CellKind, str], set[int]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: CellKey) -> None:
        """Add one key."""
        self.add_blocks(key.kind, key.mechanism, (key.block,))

    def add_blocks(self, kind: CellKind, mechanism: str, blocks: Iterable[int]) -> None:
        """Add the keys of many blocks."""
        self._blocks.setdefault((kind, mechanism), set()).update(blocks)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, CellKey) and key.block in self._blocks.get((key.kind, key.mechanism), ())

    def __iter__(self) -> Iterator[CellKey]:
        for (kind, mechanism), blocks in self._blocks.items():
            for block in blocks:
                yield CellKey(kind=kind, mechanism=mechanism, block=block)

    def __len__(self) -> int:
        return sum(len(blocks) for blocks in self._blocks.values())


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What a run has on disk: the keys that have a record, and its gate records."""

    keys: KeySet
    gates: tuple[CellRecord, ...]


def scan_run(folder: Path) -> Scan:
    """Look through the records of a run, shards included; lines that cannot be read do not count."""
    main = folder / "records.jsonl"
    if main.exists() and main.stat().st_size >= LARGE_BYTES and has_pyarrow():
        return _scan_index(folder, main)
    keys, gates = KeySet(), list[CellRecord]()
    _read_each((main, *shard_paths(folder)), keys, gates)
    return Scan(keys=keys, gates=tuple(gates))


def _read_each(paths: Iterable[Path], keys: KeySet, gates: list[CellRecord]) -> None:
    reader = Reader()
    for path in paths:
        for record in reader.read(path):
            keys.add(record.key)
            if record.key.kind == "gate":
                gates.append(record)


def has_pyarrow() -> bool:
    """Whether large files can be indexed."""
    try:
        _arrow("json"), _arrow("parquet")
    except ImportError:
        return False
    return True


def _arrow(part: str = "") -> Any:
    return importlib.import_module(f"pyarrow.{part}" if part else "pyarrow")


def _scan_index(folder: Path, main: Path) -> Scan:
    keys, gates = KeySet(), list[CellRecord]()
    pc = _arrow("compute")
    with main.open("rb") as file:
        for table in index_tables(main):
            names = table.select(["kind", "mechanism"]).group_by(["kind", "mechanism"]).aggregate([]).to_pylist()
            for name in names:
                ours = pc.and_(pc.equal(table["kind"], name["kind"]), pc.equal(table["mechanism"], name["mechanism"]))
                keys.add_blocks(name["kind"], name["mechanism"], table["block"].filter(ours).to_numpy().tolist())
            proofs = table.filter(pc.equal(table["kind"], "gate")).select(["offset", "length"]).to_pylist()
            for line in proofs:
                file.seek(line["offset"])
                gates.append(record_from_json(json.loads(file.read(line["length"]))))
    _read_each(shard_paths(folder), keys, gates)
    return Scan(keys=keys, gates=tuple(gates))


def index_tables(main: Path) -> Iterator[Table]:
    """Yield the index of a file of records, one table a chunk, extending it on disk where it can be written.

    Columns: kind, mechanism, block, status, line (counted from 1 within the chunk), offset and length in bytes.
    """
    pq = _arrow("parquet")

    folder = main.with_suffix(".index")
    end = 0
    with main.open("rb") as file:
        for path, upto in _valid_parts(folder, file):
            yield pq.read_table(path)
            end = upto
        while True:
            file.seek(end)
            data = file.read(CHUNK_BYTES)
            full = len(data) == CHUNK_BYTES
            data = data[: data.rfind(b"\n") + 1]
            if not data:
                break
            table = index_lines(data, end)
            if full:
                _store_part(folder, table, start=end, end=end + len(data), mark=data[-MARK_BYTES:])
            yield table
            end += len(data)


def _valid_parts(folder: Path, file: Any) -> list[tuple[Path, int]]:
    """The parts that follow each other from the start of the file and were made from this very file."""
    found, end = [], 0
    for path in sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []:
        match = PART.fullmatch(path.name)
        if match is None or int(match[1]) != end:
            break
        upto = int(match[2])
        mark_from = max(end, upto - MARK_BYTES)
        file.seek(mark_from)
        if f"{zlib.crc32(file.read(upto - mark_from)):08x}" != match[3]:
            break
        found.append((path, upto))
        end = upto
    return found


def _store_part(folder: Path, table: Table, *, start: int, end: int, mark: bytes) -> None:
    pq = _arrow("parquet")

    path = folder / f"part-{start:015d}-{end:015d}-{zlib.crc32(mark):08x}.parquet"
    temporary = path.with_suffix(".tmp")
    try:
        folder.mkdir(exist_ok=True)
        pq.write_table(table, temporary)
        temporary.replace(path)
    except OSError:  # a full or read-only disk costs the next scan some time, nothing else
        return


def index_lines(data: bytes, offset: int) -> Table:
    """Return the index of complete lines of records that start ``offset`` bytes into their file."""
    import numpy as np

    pa = _arrow()

    newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
    starts = np.concatenate(([0], newlines[:-1] + 1))
    lengths = newlines - starts
    table = _parse_fast(data)
    if table is None or len(table) != len(lengths):  # a damaged or blank line somewhere: look at each
        kept, table = _parse_each(data, starts, lengths)
        starts, lengths = starts[kept], lengths[kept]
        lines = np.asarray(kept, dtype=np.int64) + 1
    else:
        lines = np.arange(1, len(lengths) + 1)
    for name, values in (("line", lines), ("offset", starts + offset), ("length", lengths)):
        table = table.append_column(name, pa.array(values, pa.int64()))
    return table


def _schema() -> Any:
    pa = _arrow()

    text, whole = pa.string(), pa.int64()
    return pa.schema([("kind", text), ("mechanism", text), ("block", whole), ("status", text), ("schema", whole)])


def _parse_fast(data: bytes) -> Table | None:
    """Parse the key fields of all lines; None where a line is no such record."""
    pa, pc, pj = _arrow(), _arrow("compute"), _arrow("json")

    options = pj.ParseOptions(explicit_schema=_schema(), unexpected_field_behavior="ignore")
    # one JSON block holds at least a line: 4 MiB is more than any record, and keeps several threads busy
    reading = pj.ReadOptions(block_size=4 * 2**20)
    try:
        table = pj.read_json(pa.BufferReader(data), parse_options=options, read_options=reading)
    except pa.ArrowInvalid:
        return None
    schema = table["schema"]
    good = pc.min_max(schema).as_py()
    if any(column.null_count for column in table.columns) or not 1 <= good["min"] <= good["max"] <= SCHEMA:
        return None
    return table.drop_columns(["schema"])


def _parse_each(data: bytes, starts: Any, lengths: Any) -> tuple[list[int], Table]:
    pa = _arrow()

    kept, rows = [], []
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        try:
            record = record_from_json(json.loads(data[start : start + length]))
        except (UserError, ValueError):
            continue
        kept.append(number)
        rows.append((record.key.kind, record.key.mechanism, record.key.block, record.status))
    fields = [field for field in _schema() if field.name != "schema"]
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(fields)]
    return kept, pa.table(columns, pa.schema(fields))
