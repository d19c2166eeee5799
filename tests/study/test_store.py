import json
import os

import pytest

from fakes.study import fake_record
from wattention.core.errors import UserError
from wattention.study.grid import plan_cells
from wattention.study.store import RunFolder, list_run_folders, newest_run, read_run


def test_records_come_back_as_they_were_written(tmp_path, spec):
    folder = RunFolder(tmp_path / "run")
    folder.start(spec, resume=False)
    written = [fake_record(cell) for cell in plan_cells(spec)]
    for record in written:
        folder.append(record)
    run = read_run(tmp_path / "run")
    assert run.spec == spec
    assert list(run.records) == written
    assert run.damage == ()


def test_a_second_run_in_one_folder_is_refused(tmp_path, spec):
    folder = RunFolder(tmp_path)
    with (
        folder.locked(),
        pytest.raises(UserError, match="another run is writing into this folder"),
        RunFolder(tmp_path).locked(),
    ):
        pass


def test_a_folder_that_holds_a_run_asks_for_resume(tmp_path, spec):
    RunFolder(tmp_path).start(spec, resume=False)
    with pytest.raises(UserError, match="holds a run already(.|\n)*--resume"):
        RunFolder(tmp_path).start(spec, resume=False)
    RunFolder(tmp_path).start(spec, resume=True)


def test_a_run_resumes_only_under_its_own_specification(tmp_path, spec):
    RunFolder(tmp_path).start(spec, resume=False)
    other = spec.replace(blocks=5, training=spec.training.replace(learning_rate=0.5))
    with pytest.raises(UserError, match=r"training.learning_rate was 0.003, now 0.5; blocks was 2, now 5"):
        RunFolder(tmp_path).start(other, resume=True)


def test_a_run_may_grow_and_remembers_what_it_grew_from(tmp_path, spec):
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    folder.start(spec.replace(blocks=3), resume=True)
    folder.start(spec.replace(blocks=7), resume=True)
    stored = read_run(tmp_path).spec
    assert (stored.blocks, stored.grown_from) == (7, 2)
    folder.start(stored, resume=True)
    assert read_run(tmp_path).spec == stored
    with pytest.raises(UserError, match="blocks was 7, now 3"):
        folder.start(spec.replace(blocks=3), resume=True)
    with pytest.raises(UserError, match="seed was 0, now 1"):
        folder.start(spec.replace(blocks=9, seed=1), resume=True)
    assert read_run(tmp_path).spec == stored


def test_when_a_run_may_stop_can_be_changed_on_resuming(tmp_path, spec):
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    folder.start(spec.replace(decide={"max_blocks": 5}), resume=True)
    assert read_run(tmp_path).spec.decide.max_blocks == 5
    assert read_run(tmp_path).spec.grown_from is None


def test_a_line_half_written_by_a_dying_machine_is_reported_and_the_next_record_survives(tmp_path, spec):
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    cells = plan_cells(spec)
    folder.append(fake_record(cells[0]))
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write('{"schema":1,"kind":"tra')
    folder.append(fake_record(cells[1]))
    run = read_run(tmp_path)
    assert [record.key for record in run.records] == [cells[0].key, cells[1].key]
    assert [(one.line, one.reason) for one in run.damage] == [(2, "not complete JSON")]


def test_lines_of_a_newer_schema_are_reported_and_the_rest_is_used(tmp_path, spec):
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    record = fake_record(plan_cells(spec)[0])
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write(json.dumps(record.to_json() | {"schema": 99}) + "\n")
    folder.append(record)
    run = read_run(tmp_path)
    assert len(run.records) == 1
    assert run.damage[0].reason == "the record was written by a newer wattention"


def test_a_full_disk_loses_nothing_that_was_written(tmp_path, spec, monkeypatch):
    """The write fails half-way, as on a full disk: the half line is cut off again."""
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    cells = plan_cells(spec)
    folder.append(fake_record(cells[0]))
    real_write = os.write

    def half_then_full(descriptor, data):
        real_write(descriptor, bytes(data)[:40])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half_then_full)
    with pytest.raises(UserError, match="No space left on device(.|\n)*--resume"):
        folder.append(fake_record(cells[1]))
    monkeypatch.undo()
    folder.append(fake_record(cells[1]))
    run = read_run(tmp_path)
    assert [record.key for record in run.records] == [cells[0].key, cells[1].key]
    assert run.damage == ()


def test_a_folder_below_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the run folder(.|\n)*--out"):
        RunFolder(tmp_path / "file" / "run")


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match="cannot read the run's specification"):
        read_run(tmp_path)


def test_runs_are_listed_oldest_first(tmp_path, spec):
    for age, name in ((30, "b"), (20, "a")):
        RunFolder(tmp_path / name).start(spec, resume=False)
        os.utime(tmp_path / name / "run.json", (1e9 - age, 1e9 - age))
    assert [folder.name for folder in list_run_folders(tmp_path)] == ["b", "a"]
    assert newest_run(tmp_path).name == "a"
    with pytest.raises(UserError, match="no run to resume"):
        newest_run(tmp_path / "none")
