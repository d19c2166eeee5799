"""Blocks on Ray: real clusters on this machine, fake cells, and everything that may die."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.cells import executions, short_cell, short_run
from fakes.study import Silent
from wattention.core.errors import UserError
from wattention.study.grid import plan_blocks
from wattention.study.launcher import Nobody
from wattention.study.on_ray import RayLauncher
from wattention.study.ray_session import ray_session
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_run

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True, scope="module")
def _workers_find_the_fakes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_AUTH_MODE", "disabled")  # a token would be written into the home folder
        patch.setenv("RAY_health_check_period_ms", "500")  # a dead node is noticed in seconds, not in half a minute
        patch.setenv("RAY_health_check_failure_threshold", "3")
        yield


@pytest.fixture(scope="module")
def ray():
    with ray_session(None, ()) as module:
        yield module


def run_on_ray(folder, spec, watcher=None, resume=False, **options):
    launcher = RayLauncher(work=short_cell, **options)
    return run_comparison(RunFolder(folder), spec, launcher, watcher or Nobody(), resume=resume)


def test_every_block_proves_on_its_host_before_it_times_and_records_come_home_once(ray, tmp_path):
    spec, silent = short_run(tmp_path / "ledger", blocks=2), Silent()
    run = run_on_ray(tmp_path / "r", spec, silent)
    assert run.damage == ()
    assert len(silent.ran) == silent.planned == 2 + 2 * 2
    assert len(run.records) == 2 * 4, "one more gate a mechanism, of the second block's host"
    assert set(executions(tmp_path / "ledger").values()) == {1}
    for block in (0, 1):
        kinds = [record.key.kind for record in run.records if record.key.block == block]
        assert kinds == ["gate", "gate", "train", "train"]
    assert all(record.environment["host"]["hostname"] for record in run.records)


def test_a_host_whose_gate_fails_refuses(ray, tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1, gate="gate_failed")
    run = run_on_ray(tmp_path / "r", spec)
    assert {record.status for record in run.records} == {"gate_failed"}
    assert {kind for kind, _, _ in executions(tmp_path / "ledger")} == {"gate"}


def test_a_worker_that_is_killed_costs_only_the_cell_it_was_running(ray, tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1, mechanisms=4, sleep_s=0.4)
    killed = []

    class Killer(Silent):
        def cell_finished(self, cell, record):
            super().cell_finished(cell, record)
            if len(self.ran) == 5:
                killed.append(record.facts["launcher"])
                os.kill(killed[0], signal.SIGKILL)

    run = run_on_ray(tmp_path / "r", spec, Killer())
    assert killed
    assert [record.status for record in run.records] == ["ok"] * 8
    assert run.damage == ()
    assert len({record.facts["launcher"] for record in run.records}) == 2
    assert set(executions(tmp_path / "ledger").values()) == {1}, "the cell that was cut off is not one that ended"


def test_a_block_whose_worker_always_dies_is_given_up_and_the_others_are_finished(ray, tmp_path):
    deadly = tmp_path / "deadly"
    deadly.touch()
    spec = short_run(tmp_path / "ledger", blocks=2, deadly=str(deadly))
    with pytest.raises(UserError, match=r"1 blocks could not be finished, 2 cells are missing(.|\n)*--resume"):
        run_on_ray(tmp_path / "r", spec)
    assert {r.key.block for r in read_run(tmp_path / "r").records if r.key.kind == "train"} == {0}
    deadly.unlink()
    assert len(run_on_ray(tmp_path / "r", spec, resume=True).records) == 8


def test_what_no_machine_can_serve_is_refused_before_anything_starts(ray, tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1)
    with pytest.raises(UserError, match="can never run a block(.|\n)*got: a100=1(.|\n)*--ray-resources"):
        run_on_ray(tmp_path / "r", spec, resources={"a100": 1.0})
    claim = RayLauncher(resources={"CPU": 3.0}).claim(plan_blocks(spec, (), folder=tmp_path)[0])
    assert claim == {"CPU": 3.0, "GPU": 0.0}


def test_the_last_words_of_a_cell_that_failed_far_away_travel_with_its_record(ray, tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1, mechanisms=1, fail="no such kernel")
    run = run_on_ray(tmp_path / "r", spec)
    (failed,) = [record for record in run.records if record.status == "error"]
    assert "no such kernel" in failed.detail
    assert "Traceback" in failed.facts["output"]


def test_ctrl_c_cancels_what_runs_and_keeps_everything_finished(ray, tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=2, mechanisms=4, sleep_s=0.2)

    class Impatient(Silent):
        def cell_finished(self, cell, record):
            super().cell_finished(cell, record)
            if len(self.ran) == 6:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_on_ray(tmp_path / "r", spec, Impatient())
    kept = {record.key for record in read_run(tmp_path / "r").records}
    time.sleep(1.0)
    ran = executions(tmp_path / "ledger")
    time.sleep(1.0)
    assert executions(tmp_path / "ledger") == ran, "nothing of it runs on"
    rest = Silent()
    assert len(run_on_ray(tmp_path / "r", spec, rest, resume=True).records) >= 12
    assert len(rest.ran) == rest.planned - rest.done
    assert not set(rest.ran) & kept


DRIVER = """
import sys
from pathlib import Path
from fakes.cells import short_cell
from wattention.study.launcher import Nobody
from wattention.study.on_ray import RayLauncher
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_spec
folder = Path(sys.argv[1])
run_comparison(RunFolder(folder), read_spec(folder), RayLauncher(work=short_cell), Nobody(), resume=True)
"""


def test_a_driver_that_is_killed_loses_no_record_it_had_and_the_next_one_runs_exactly_the_rest(tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1, mechanisms=4, sleep_s=0.4)
    RunFolder(tmp_path / "r").start(spec, resume=False)
    records = tmp_path / "r" / "records.jsonl"
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path / "r")]) as driver:
        while not records.exists() or records.read_text().count("\n") < 5:
            time.sleep(0.02)
            assert driver.poll() is None
        driver.kill()
    kept = read_run(tmp_path / "r").records
    again = Silent()
    run = run_on_ray(tmp_path / "r", spec, again, resume=True)
    assert len(again.ran) == 8 - len(kept)
    assert run.records[: len(kept)] == kept
    assert len(run.records) == len({record.key for record in run.records}) == 8
    assert run.damage == ()
