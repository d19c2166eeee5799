"""Blocks through submitit: the script that would be submitted, and real tasks on its local executor."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.cells import executions, short_cell, short_run
from fakes.study import Silent, fake_record
from wattention.core.errors import UserError
from wattention.study.grid import plan_blocks
from wattention.study.launcher import Nobody
from wattention.study.on_slurm import BlockTask, SlurmLauncher, slurm_settings
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, append_record, read_run

TESTS = Path(__file__).parents[1]
LOCAL = slurm_settings({"cluster": "local"})


@pytest.fixture(autouse=True)
def _tasks_find_the_fakes(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))


def launcher():
    return SlurmLauncher(LOCAL, work=short_cell, sleep=lambda _: time.sleep(0.1))


def test_the_script_is_an_array_with_one_task_a_block_and_claims_what_the_run_needs(tmp_path, spec):
    settings = slurm_settings({"time": "90", "partition": "gpu", "setup": "module load cuda", "mem_gb": "32"})
    run = spec.replace(device="cuda", threads=8, blocks=5)
    script = SlurmLauncher(settings).script(plan_blocks(run, (), folder=tmp_path), tmp_path / "slurm")
    for line in (
        "#SBATCH --array=0-4%5",
        "#SBATCH --time=90",
        "#SBATCH --partition=gpu",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --gpus-per-node=1",
        "#SBATCH --mem=32GB",
        "module load cuda",
    ):
        assert line in script.splitlines()
    assert "--exclusive" not in script
    assert "--exclusive" in SlurmLauncher(settings).script(plan_blocks(spec, (), folder=tmp_path), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tiem": "5"}, "did you mean time"),
        ({"time": "1h"}, "wanted: a whole number"),
        ({"cluster": "mars"}, "slurm or local"),
        ({"exclusive": "maybe"}, "true or false"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given, words):
    with pytest.raises(UserError, match=words):
        slurm_settings(given)


def test_without_slurm_the_error_says_how_to_rehearse(tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1)
    with pytest.raises(UserError, match="cluster=local"):
        run_comparison(RunFolder(tmp_path / "r"), spec, SlurmLauncher(slurm_settings({})), Silent(), resume=False)


def test_tasks_write_shards_and_the_driver_collects_each_record_once(tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=3)
    silent = Silent()
    run = run_comparison(RunFolder(tmp_path / "r"), spec, launcher(), silent, resume=False)
    assert run.damage == ()
    assert len(silent.ran) == silent.planned == 2 + 3 * 2
    assert set(executions(tmp_path / "ledger").values()) == {1}
    lines = (tmp_path / "r" / "records.jsonl").read_text().splitlines()
    assert len(lines) == len(run.records) == 3 * 4, "every block proves both mechanisms on its host"


def test_a_task_that_is_requeued_runs_only_the_cells_without_a_record(tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=1, mechanisms=3)
    folder = RunFolder(tmp_path / "r")
    folder.start(spec, resume=False)
    (block,) = plan_blocks(spec, (), folder=folder.folder)
    shard = folder.folder / "shards" / "000000-earlier.jsonl"
    shard.parent.mkdir()
    for cell in block.cells[:4]:
        append_record(shard, fake_record(cell), resume="")
    task = BlockTask(block, short_cell)
    assert task.checkpoint().function is task
    assert task() == 2
    assert set(executions(tmp_path / "ledger")) == {("train", c.key.mechanism, "0") for c in block.cells[4:]}
    assert task() == 0
    assert len(read_run(folder.folder).records) == 6


def test_a_driver_that_is_killed_leaves_its_tasks_alive_and_the_next_one_waits_for_them(tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=2, sleep_s=1.0)
    RunFolder(tmp_path / "r").start(spec, resume=False)
    program = "import sys; from pathlib import Path\nfrom study_drivers import slurm\nslurm(Path(sys.argv[1]))\n"
    (tmp_path / "study_drivers.py").write_text(
        "from fakes.cells import short_cell\nfrom wattention.study.on_slurm import SlurmLauncher, slurm_settings\n"
        "from wattention.study.launcher import Nobody\nfrom wattention.study.run import run_comparison\n"
        "from wattention.study.store import RunFolder, read_spec\n"
        "def slurm(folder):\n"
        "    launcher = SlurmLauncher(slurm_settings({'cluster': 'local'}), work=short_cell)\n"
        "    run_comparison(RunFolder(folder), read_spec(folder), launcher, Nobody(), resume=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "r")], cwd=tmp_path) as driver:
        while not list((tmp_path / "ledger").iterdir()):
            time.sleep(0.05)
            assert driver.poll() is None
        driver.send_signal(signal.SIGKILL)
    assert len(executions(tmp_path / "ledger")) < 8
    run = run_comparison(RunFolder(tmp_path / "r"), spec, launcher(), Nobody(), resume=True)
    assert len(run.records) == 2 * 2 + 2 * 2
    assert set(executions(tmp_path / "ledger").values()) == {1}, "no cell was run twice"
    assert run.damage == ()


def test_a_task_that_dies_is_named_and_resume_runs_exactly_the_missing_cells(tmp_path):
    deadly = tmp_path / "deadly"
    deadly.touch()
    spec = short_run(tmp_path / "ledger", blocks=2, deadly=str(deadly))
    with pytest.raises(UserError, match=r"1 tasks ended early, 2 cells are missing(.|\n)*--resume"):
        run_comparison(RunFolder(tmp_path / "r"), spec, launcher(), Nobody(), resume=False)
    deadly.unlink()
    again = Silent()
    run = run_comparison(RunFolder(tmp_path / "r"), spec, launcher(), again, resume=True)
    assert sorted(key.block for key in again.ran) == [1, 1]
    assert set(executions(tmp_path / "ledger").values()) == {1}
    assert len(run.records) == 8
    assert run.damage == ()
