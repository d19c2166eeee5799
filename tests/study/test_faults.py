"""Disks that fill up or stall, runs started twice, clocks that disagree: no finished cell is lost or doubled."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from fakes.cells import short_run
from fakes.study import FakeLauncher, Silent, fake_record
from wattention.core.errors import UserError
from wattention.study.grid import plan_blocks, plan_cells
from wattention.study.launcher import Nobody
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, append_record, read_run

TESTS = Path(__file__).parents[1]

FULL_DISK = """
import resource, sys
from pathlib import Path
from fakes.study import FakeLauncher
from wattention.study.launcher import Nobody
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_spec
folder = Path(sys.argv[1])
spec = read_spec(folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
run_comparison(RunFolder(folder), spec, FakeLauncher(), Nobody(), resume=True)
"""


def test_a_disk_that_is_full_in_the_middle_of_a_record_leaves_whole_records_and_resume_runs_the_rest(tmp_path, spec):
    """The kernel cuts the write short, as on a full disk: no file of this process may grow beyond the limit."""
    RunFolder(tmp_path).start(spec, resume=False)
    path = os.pathsep.join([str(TESTS), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), "2000"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "cannot write the record of" in done.stderr
    assert "--resume" in done.stderr
    kept = read_run(tmp_path)
    assert kept.damage == ()
    assert 0 < len(kept.records) < len(plan_cells(spec))
    again = Silent()
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), again, resume=True)
    assert run.records[: len(kept.records)] == kept.records
    assert len(again.ran) == len(plan_cells(spec)) - len(kept.records)


class SlowFolder(RunFolder):
    """A filesystem that stalls at every record, and gives up at one of them."""

    def __init__(self, folder, *, fails_at=None):
        super().__init__(folder)
        self.fails_at, self.appended = fails_at, 0

    def append(self, record):
        time.sleep(0.05)
        self.appended += 1
        if self.appended == self.fails_at:
            raise UserError("cannot write the records", got="stale file handle")
        super().append(record)


def test_a_filesystem_that_stalls_delays_the_cells_and_loses_none(tmp_path, spec):
    told = []

    class Telling(Silent):
        def cell_finished(self, cell, record):
            assert record.key in {one.key for one in read_run(tmp_path).records}, "told of before it was on disk"
            told.append(record.key)

    run = run_comparison(SlowFolder(tmp_path), spec, FakeLauncher(), Telling(), resume=False)
    assert len(told) == len(run.records) == len(plan_cells(spec))


def test_a_filesystem_that_gives_up_ends_the_run_and_resume_finishes_it(tmp_path, spec):
    with pytest.raises(UserError, match="stale file handle"):
        run_comparison(SlowFolder(tmp_path, fails_at=4), spec, FakeLauncher(), Nobody(), resume=False)
    assert len(read_run(tmp_path).records) == 3
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), Nobody(), resume=True)
    assert len(run.records) == len(plan_cells(spec))


def test_a_run_that_is_started_twice_runs_once(tmp_path, spec):
    outcomes = []

    def start():
        try:
            run_comparison(SlowFolder(tmp_path), spec, FakeLauncher(), Nobody(), resume=True)
            outcomes.append("finished")
        except UserError as error:
            outcomes.append(error.what)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["another run is writing into this folder", "finished"]
    assert (tmp_path / "records.jsonl").read_text().count("\n") == len(plan_cells(spec))


def test_where_a_lock_does_not_hold_the_first_record_of_a_cell_counts_and_the_other_is_named(tmp_path, spec):
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    cells = plan_cells(spec)
    first, second = fake_record(cells[0]), fake_record(cells[0], "error", "the same cell, run again")
    for record in (first, second, fake_record(cells[1])):
        folder.append(record)
    run = read_run(tmp_path)
    assert run.records == (first, fake_record(cells[1]))
    assert [(one.line, one.reason, one.repeat) for one in run.damage] == [
        (2, f"repeats {cells[0].key}; the first record of a cell counts", True)
    ]


def test_shards_count_after_the_records_by_name_and_are_collected_once(tmp_path, spec):
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    cells = plan_cells(spec)
    (tmp_path / "shards").mkdir()
    folder.append(fake_record(cells[0]))
    for name, place, detail in (("b", 1, "later by name"), ("a", 1, "earlier"), ("b", 2, "alone"), ("b", 0, "late")):
        shard = tmp_path / "shards" / f"000000-{name}.jsonl"
        append_record(shard, fake_record(cells[place], "error", detail), resume="")
    expected = ["", "earlier", "alone"]
    assert [record.detail for record in read_run(tmp_path).records] == expected
    folder.collect_shards()
    folder.collect_shards()
    assert [record.detail for record in read_run(tmp_path).records] == expected
    assert (tmp_path / "records.jsonl").read_text().count("\n") == 3
    assert {one.file for one in read_run(tmp_path).damage} == {"000000-b.jsonl"}
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), again := Silent(), resume=True)
    assert len(again.ran) == len(cells) - 3
    assert len(run.records) == len(cells)


def test_clocks_that_disagree_by_years_change_nothing(tmp_path, spec):
    """Hosts a decade ahead and behind: order and choice of records come from the files alone."""

    class Skewed(FakeLauncher):
        def run(self, cell, **options):
            skew = timedelta(days=3650 * (-1) ** cell.key.block)
            started = (datetime.now(UTC) + skew).isoformat(timespec="seconds")
            return replace(super().run(cell, **options), started_utc=started)

    silent = Silent()
    run = run_comparison(RunFolder(tmp_path), spec, Skewed(), silent, resume=False)
    assert [record.key for record in run.records] == silent.ran
    repeat = replace(run.records[0], started_utc="1970-01-01T00:00:00+00:00", detail="from a host with a dead battery")
    RunFolder(tmp_path).append(repeat)
    assert read_run(tmp_path).records == run.records
    assert run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), again := Silent(), resume=True)
    assert again.ran == []


class OnTwoHosts(FakeLauncher):
    """Says that each block's cells ran on the host that ``host_of`` names."""

    def __init__(self, host_of):
        super().__init__()
        self.host_of = host_of

    def run(self, cell, **options):
        host = {"hostname": self.host_of(cell), "cpu": "a processor"}
        return replace(super().run(cell, **options), environment={"host": host})


def test_a_host_that_did_not_make_the_proof_proves_again_before_it_times(tmp_path, spec):
    cells = plan_cells(spec)
    folder = RunFolder(tmp_path)
    folder.start(spec, resume=False)
    for cell in cells[:2]:
        folder.append(OnTwoHosts(lambda _: "elsewhere").run(cell, log=None, on_progress=None, time_limit_s=None))
    launched = []

    class Here(FakeLauncher):
        def run(self, cell, **options):
            launched.append(cell.key.kind)
            return super().run(cell, **options)

    run = run_comparison(RunFolder(tmp_path), spec, Here(), silent := Silent(), resume=True)
    assert launched[:3] == ["gate", "gate", "train"]
    assert launched.count("gate") == 2
    assert len(silent.ran) == silent.planned - 2
    assert len({record.key for record in run.records}) == len(run.records) == len(cells)


def test_a_block_travels_with_the_cells_that_are_missing_and_no_others(tmp_path, spec):
    cells = plan_cells(spec)
    blocks = plan_blocks(spec, {cells[0].key, cells[3].key}, folder=tmp_path)
    assert [cell for block in blocks for cell in block.cells] == [*cells[1:3], *cells[4:]]
    assert [block.number for block in blocks] == [0, 1]
    rest = blocks[0].without([fake_record(cell) for cell in blocks[0].cells[:1]])
    assert rest.cells == blocks[0].cells[1:]
    assert [gate.key for gate in rest.gates] == [cells[1].key]
    assert plan_blocks(spec, {cell.key for cell in cells}, folder=tmp_path) == ()


LONG_CELL = """
import sys
from pathlib import Path
from fakes.cells import short_cell
from wattention.study.launcher import Nobody
from wattention.study.local import LocalLauncher
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_spec
folder = Path(sys.argv[1])
launcher = LocalLauncher(threads=1, malloc="default", work=short_cell)
run_comparison(RunFolder(folder), read_spec(folder), launcher, Nobody(), resume=True)
"""


def test_a_cell_ends_with_the_launcher_that_is_killed(tmp_path):
    """Else it would disturb the cells of whoever goes on with the run."""
    pids = tmp_path / "pids"
    pids.mkdir()
    spec = short_run(tmp_path / "ledger", blocks=1, sleep_s=60.0, pids=str(pids))
    RunFolder(tmp_path / "r").start(spec, resume=False)
    path = os.pathsep.join([str(TESTS), *sys.path])
    command = [sys.executable, "-c", LONG_CELL, str(tmp_path / "r")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as driver:
        while not list(pids.iterdir()):
            time.sleep(0.05)
            assert driver.poll() is None
        driver.kill()
    (cell,) = (int(file.name) for file in pids.iterdir())
    deadline = time.monotonic() + 30
    while psutil.pid_exists(cell) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(cell)
