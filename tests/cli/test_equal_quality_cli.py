"""Quality held equal from the command line: a tiny run of everything, in real processes, and resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wattention.study.store import read_run

TINY = (
    *("-m", "baseline", "--lengths", "none", "--threads", "1", "--context", "32", "--steps", "10"),
    *("--set", "model.layers=1", "--set", "model.width=16", "--set", "model.heads=2"),
    *("--set", "data.max_bytes=100000", "--set", "data.heldout_tokens=128", "--set", "measure.decode_tokens=4"),
    *("--target-loss", "auto", "--max-tokens", "2000", "--learning-rates", "1e-3,1e-2"),
    *("--seeds", "1", "--reruns", "2", "--match", "params"),
)


def wattention(*words, cwd):
    command = [sys.executable, "-m", "wattention", "compare", *words, "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_everything_at_once_runs_and_resumes(tmp_path):
    result = wattention(*TINY, "--out", "r", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    kinds = [record.key.kind for record in read_run(tmp_path / "r").records]
    assert kinds == ["gate", "tune", "train", "train", "target", "target"]
    held = json.loads(result.stdout.splitlines()[-1])["equal_quality"]
    assert held["seeds"]["baseline"]["repeats"] is True
    assert held["target"]["mechanisms"]["baseline"]["blocks"] == 2
    assert held["matches"]["baseline"]["mismatch"]["value"] == 0
    assert held["searches"]["baseline"]["tokens"]["value"] == 2 * 10 * 64
    lines = (tmp_path / "r" / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "r" / "records.jsonl").write_text("".join(lines[:-1]))
    again = wattention("--resume", "--out", "r", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    first, second = (json.loads(out.stdout.splitlines()[-1])["equal_quality"]["target"] for out in (result, again))
    assert first["target_bits_per_byte"] == second["target_bits_per_byte"]
    assert len(read_run(tmp_path / "r").records) == 6
    assert "Held-out loss on the way to the target" in Path(tmp_path / "r" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--target-loss", "low"), "--target-loss cannot be read"),
        (("--learning-rates", "1e-3;1e-2"), "--learning-rates cannot be read"),
        (("--recall-lengths", "long"), "--recall-lengths cannot be read"),
        (("--max-tokens", "100"), "add --target-loss X in bits per byte, or auto"),
    ],
)
def test_options_that_cannot_be_read_say_how(words, said, tmp_path):
    result = wattention(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert said in result.stderr
