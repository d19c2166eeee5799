"""Large files of records: the index finds what reading line by line finds, and never outlives its file."""

import json

import pytest

from fakes.study import fake_record
from wattention.core.records import CellKey
from wattention.study import scan
from wattention.study.grid import plan_blocks, plan_cells
from wattention.study.store import RunFolder, append_record, read_run
from wattention.study.sweep import read_grid

pytest.importorskip("pyarrow")


@pytest.fixture
def folder(tmp_path, spec):
    """A run of 42 cells, read in chunks of a few records."""
    run = RunFolder(tmp_path)
    run.start(spec.replace(blocks=10), resume=False)
    for cell in plan_cells(spec.replace(blocks=10)):
        run.append(fake_record(cell))
    return run


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(scan, "LARGE_BYTES", 1)
    monkeypatch.setattr(scan, "CHUNK_BYTES", 8000)


def slowly(folder):
    return frozenset(record.key for record in read_run(folder).records)


def parts(folder):
    return sorted((folder / "records.index").glob("part-*.parquet"))


def test_the_index_finds_the_keys_and_gates_that_reading_every_line_finds(folder, small_chunks):
    for _ in range(2):
        found = scan.scan_run(folder.folder)
        assert found.keys == slowly(folder.folder)
        assert [gate.key.mechanism for gate in found.gates] == ["baseline", "flash"]
    assert len(parts(folder.folder)) >= 2


def test_the_index_follows_a_file_that_grows_and_counts_shards(folder, small_chunks):
    scan.scan_run(folder.folder)
    before = parts(folder.folder)
    late = fake_record(plan_cells(read_run(folder.folder).spec.replace(blocks=30))[-1])
    folder.append(late)
    (folder.folder / "shards").mkdir()
    other = plan_cells(read_run(folder.folder).spec.replace(blocks=40))[-1]
    append_record(folder.folder / "shards" / "000039-a.jsonl", fake_record(other), resume="")
    assert scan.scan_run(folder.folder).keys == slowly(folder.folder) >= {late.key, other.key}
    assert parts(folder.folder)[: len(before)] == before


def test_damaged_lines_do_not_count_and_do_not_shift_the_others(folder, small_chunks):
    path = folder.folder / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    half, newer = lines[3][: len(lines[3]) // 2] + "\n", json.dumps(json.loads(lines[5]) | {"schema": 99}) + "\n"
    lines[3:6] = [half, "\n", newer]
    path.write_text("".join(lines))
    found = scan.scan_run(folder.folder)
    assert found.keys == slowly(folder.folder)
    assert len(found.keys) == 42 - 3


def test_an_index_of_another_file_is_not_believed(folder, small_chunks):
    scan.scan_run(folder.folder)
    path = folder.folder / "records.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(reversed(lines[4:])))
    assert scan.scan_run(folder.folder).keys == slowly(folder.folder)


def test_without_pyarrow_the_answer_is_the_same(folder, small_chunks, monkeypatch):
    monkeypatch.setattr(scan, "has_pyarrow", lambda: False)
    assert scan.scan_run(folder.folder).keys == slowly(folder.folder)
    assert parts(folder.folder) == []


def test_a_hundred_thousand_cells_are_planned_lazily_and_exactly(tmp_path):
    """Points come one at a time; 200 seeds x 10 lengths x 50 cells."""
    base = {"mechanisms": ["baseline", "flash"], "measure": {"lengths": []}, "blocks": 24}
    grid = read_grid({"base": base, "grid": {"seed": list(range(200)), "length": [2**n for n in range(5, 15)]}})
    count, first = 0, None
    for point in grid.points(threads=1):
        cells = [cell.key for block in plan_blocks(point.spec, (), folder=tmp_path) for cell in block.cells]
        count += len(cells)
        first = first or cells[0]
    assert count == 100_000
    assert first == CellKey(kind="gate", mechanism="baseline", block=0)
