"""The command as a user types it: help, bad input, and a small comparison from start to resume."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

SMALL = shlex.split(
    "--steps 4 --batch 2 --context 64 --lengths 32,64 --blocks 1 --threads 1 --set model.width=32 --set model.heads=2 "
    "--set model.layers=1 --set data.max_bytes=200000 --set data.heldout_tokens=256 --set measure.decode_tokens=4 "
    "--set measure.length_budget_s=0"
)


def wattention(*words, cwd, **options):
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-m", "wattention", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, check=False, **options)


def test_help_is_instant_because_nothing_heavy_is_imported():
    code = (
        "import sys, wattention.cli.app\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pydantic', 'numba', 'plotly', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    result = wattention("compare", "-m", "sdpa", "-m", "flash", *SMALL, "--out", "runs/a", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder, result


def test_compare_prints_the_table_and_json_last(finished):
    _, result = finished
    assert "Mechanisms" in result.stdout
    data = json.loads(result.stdout.splitlines()[-1])
    assert [m["mechanism"] for m in data["mechanisms"]] == ["sdpa", "flash"]
    for mechanism in data["mechanisms"]:
        assert mechanism["status"] == "ok"
        assert mechanism["failed_clauses"] == []
        quantities = mechanism["quantities"]
        for key in ("tokens_per_s", "step_s", "peak_tensor_bytes", "flop_per_token", "cpu_s_per_step", "prefill_s"):
            assert quantities[key]["value"] > 0, key
        energy = quantities["energy_per_token_j"]
        assert "absent" in energy or energy["origin"] in ("measured", "estimated")
        assert set(mechanism["lengths"]) == {"32", "64"}


def test_progress_is_on_stderr_one_line_a_cell(finished):
    _, result = finished
    assert "[6/6]" in result.stderr
    assert "[1/6] gate" in result.stderr


def test_report_prints_the_same_table_again(finished):
    folder, result = finished
    again = wattention("report", "runs/a", "--json", cwd=folder)
    assert again.stdout == result.stdout


def test_list_shows_the_run(finished):
    folder, _ = finished
    listed = wattention("list", cwd=folder)
    assert "6/6" in listed.stdout
    assert "sdpa, flash" in listed.stdout


def test_resuming_does_not_add_blocks_until_decided_unless_asked_to(finished):
    folder, _ = finished
    result = wattention("compare", "--resume", "--out", "runs/a", "--max-blocks", "4", cwd=folder)
    assert result.returncode == 2
    assert "add --until-decided" in result.stderr


def test_a_finished_run_resumes_to_itself(finished):
    folder, _ = finished
    before = (folder / "runs/a/records.jsonl").read_bytes()
    again = wattention("compare", "--resume", "--out", "runs/a", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert (folder / "runs/a/records.jsonl").read_bytes() == before


def test_a_finished_run_takes_more_blocks_until_its_pairs_are_decided_or_the_budget_is_spent(finished):
    folder, _ = finished
    shutil.copytree(folder / "runs/a", folder / "runs/b")
    before = (folder / "runs/b/records.jsonl").read_bytes()
    words = ("--until-decided", "--max-blocks", "2", "--json")
    grown = wattention("compare", "--resume", "--out", "runs/b", *words, cwd=folder)
    assert grown.returncode == 0, grown.stderr
    assert (folder / "runs/b/records.jsonl").read_bytes().startswith(before)
    assert "after 1 block 0 of 1 pairs are decided; open: flash against sdpa" in grown.stderr
    assert "stopped after 2 blocks at --max-blocks 2: 1 of 1 pairs are undecided by time" in grown.stderr
    assert "Which pairs are decided" in grown.stdout
    pairs = {p["measure"]: p for p in json.loads(grown.stdout.splitlines()[-1])["pairs"]}
    assert (pairs["step_s"]["blocks"], pairs["step_s"]["verdict"]) == (2, "undecided")
    assert (pairs["peak_tensor_bytes"]["verdict"], pairs["step_s"]["judged_by"]) == ("equal", "every block")


def test_a_second_run_into_the_folder_is_refused_and_harms_nothing(finished):
    folder, _ = finished
    before = (folder / "runs/a/records.jsonl").read_bytes()
    refused = wattention("compare", "-m", "sdpa", *SMALL, "--out", "runs/a", cwd=folder)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    assert (folder / "runs/a/records.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "flahs"], "did you mean flash"),
        (["--preset", "gtp2"], "did you mean gpt2"),
        (["--set", "model.heads=3"], "heads do not divide the model width"),
        (["--set", "sliding_window.window=2048"], "window"),
        (["--text", "missing.txt"], "missing.txt"),
        (["--lengths", "a,b"], "--lengths cannot be read"),
        (["--device", "cuda:77"], "CUDA device"),
        (["--out", "/proc/run"], "cannot write the run folder"),
        (["--max-blocks", "4"], "add --until-decided"),
        (["--until-decided", "--decide-by", "tiem"], "DecideSpec.by"),
    ],
)
def test_bad_input_is_one_clear_error_and_exit_code_2(tmp_path, words, said):
    result = wattention("compare", *words, cwd=tmp_path)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path):
    command = [sys.executable, "-m", "wattention", "compare", "-m", "sdpa", *SMALL, "--out", "r"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # background jobs ignore Ctrl-C
    with subprocess.Popen(command, cwd=tmp_path, **pipes, **heard) as process:
        records = tmp_path / "r" / "records.jsonl"
        deadline = time.monotonic() + 300
        while not (records.exists() and records.read_text().count("\n")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "go on with: wattention compare --resume --out r" in stderr
    kept = records.read_text().splitlines()
    finished = wattention("compare", "--resume", "--out", "r", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    lines = records.read_text().splitlines()
    assert lines[: len(kept)] == kept
    assert len(lines) == 3
