"""Where cells run, as asked for on the command line: plans, scripts, and refusals before anything starts."""

import json
import os
import subprocess
import sys

import pytest

SMALL = ["-m", "baseline", "-m", "flash", "--blocks", "3", "--lengths", "none"]
GRID = """
[base]
mechanisms = ["baseline", "flash"]
measure = { lengths = [] }
[grid]
length = [64, 128]
seed = [0, 1]
"""


def wattention(*words, cwd):
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONWARNINGS": "error", "COLUMNS": "120"}
    command = [sys.executable, "-m", "wattention", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--launcher", "rey"], "did you mean ray"),
        (["--ray-address", "auto"], "--ray-address is for --launcher ray"),
        (["--launcher", "ray", "--slurm", "time=5"], "--slurm is for --launcher slurm"),
        (["--launcher", "ray", "--ray-resources", "GPU"], "--ray-resources cannot be read"),
        (["--launcher", "ray", "--device", "cuda:1"], "numbered from 0"),
        (["--launcher", "slurm", "--slurm", "tiem=5"], "did you mean time"),
    ],
)
def test_what_cannot_be_launched_is_one_clear_error(words, message, tmp_path):
    done = wattention("compare", *SMALL, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_a_comparison_counts_cells_and_writes_nothing(tmp_path):
    done = wattention("compare", *SMALL, "--dry-run", cwd=tmp_path)
    assert "1 run, 8 cells, 8 of them to run" in done.stdout, done.stderr
    assert "No prediction of time" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_for_slurm_is_the_script_alone(tmp_path):
    done = wattention("compare", *SMALL, "--launcher", "slurm", "--slurm", "time=30", "--dry-run", cwd=tmp_path)
    assert done.stdout.startswith("#!/bin/bash"), done.stderr
    assert "#SBATCH --array=0-2%3" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_planned_and_refused_before_anything_starts(tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    plan = wattention("sweep", "grid.toml", "--dry-run", cwd=tmp_path)
    assert "4 runs, 24 cells, 24 of them to run" in plan.stdout, plan.stderr
    bad = wattention("sweep", "grid.toml", "--resume", cwd=tmp_path)
    assert (bad.returncode, "--out" in bad.stderr) == (2, True)
    (tmp_path / "grid.toml").write_text(GRID.replace("seed = [0, 1]", "seed = [0, -1]"))
    bad = wattention("sweep", "grid.toml", cwd=tmp_path)
    assert bad.returncode == 2
    assert "the point length-64_seed-1 of the grid: RunSpec.seed" in bad.stderr


def test_a_small_sweep_runs_for_real_and_prints_every_point(tmp_path):
    small = {
        "base": {
            "mechanisms": ["sdpa"], "blocks": 1, "threads": 1, "measure": {"lengths": [], "decode_tokens": 4},
            "model": {"layers": 1, "heads": 2, "width": 32},
            "data": {"max_bytes": 200000, "heldout_tokens": 256}, "training": {"steps": 4, "batch": 2},
        },
        "grid": {"length": [32, 64]},
    }  # fmt: skip
    (tmp_path / "grid.toml").write_text(toml(small))
    done = wattention("sweep", "grid.toml", "--out", "s", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout.splitlines()[-1])["points"]
    assert [point["values"]["length"] for point in points] == ["32", "64"]
    plan = wattention("sweep", "grid.toml", "--out", "s", "--dry-run", cwd=tmp_path)
    assert "2 runs, 4 cells, 0 of them to run" in plan.stdout
    assert "Predicted time of all cells, on disk or not" in plan.stdout
    assert "for 2 of 2 runs" in plan.stdout


def toml(data):
    lines = []
    for table, fields in data.items():
        lines.append(f"[{table}]")
        for key, value in fields.items():
            if isinstance(value, dict):
                inner = ", ".join(f"{k} = {json.dumps(v)}" for k, v in value.items())
                lines.append(f"{key} = {{ {inner} }}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines)
