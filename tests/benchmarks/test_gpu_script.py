"""The GPU script, driven from end to end on a simulated device; its parts survive each other, its budget holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpu import run as script
from wattention.study.store import read_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu")
    command = [sys.executable, str(ROOT / "benchmarks/gpu/run.py"), "--out", str(out), "--dry-device"]
    command += ["--mechanism", "sdpa", "--mechanism", "linear"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    return out, json.loads((out / "gpu.json").read_text()), done.stdout


def test_every_part_completes_and_says_what_it_took(dry):
    _, result, printed = dry
    assert result["simulated"]
    for part in script.PARTS:
        outcome = result[part.name]
        assert "failed" not in outcome, outcome
        assert "stopped" not in outcome, outcome
        assert outcome["wall_s"] >= 0
    assert "USDT" not in printed
    assert printed.index("long-shape ") < printed.index("written to")


def test_the_gate_speaks_before_any_number(dry):
    _, result, _ = dry
    verdicts = result["gate"]["found"]
    assert set(verdicts) == {f"{m} {p}" for m in ("sdpa", "linear") for p in ("float32", "bfloat16")}
    assert all(one["passed"] for one in verdicts.values())


def test_its_records_are_runs_like_any_other_and_stamped(dry):
    out, result, _ = dry
    for shape in ("study-shape", "long-shape"):
        run = read_run(out / shape)
        assert {(r.key.mechanism, r.key.block) for r in run.records} == {
            (m, b) for m in ("sdpa", "linear") for b in (0, 1)
        }
        for record in run.records:
            assert record.simulated
            assert record.facts["processes"] == script.ONE_PROCESS
            assert record.phases["energy"].readings["energy_j"].value > 0
        summary = result[shape]["found"]["summary"]
        for row in summary.values():
            assert row["blocks"] == 2
            assert 0 < row["net_j_per_token"] < row["gross_j_per_token"]


def test_idle_power_is_that_of_the_device(dry):
    _, result, _ = dry
    idle = result["study-shape"]["found"]["idle"]
    assert all(60 < one["power_w"] < 150 for one in idle.values())  # 70 W, and what waking up costs


def session(tmp_path, budget_s=100.0):
    return script.Session(out=tmp_path, device="cpu", budget_s=budget_s, dry=True, mechanisms=("sdpa",))


def test_a_part_that_fails_leaves_the_others_alone(tmp_path):
    def fail(session, share_s):
        raise RuntimeError("no such luck")

    parts = (
        script.Part(name="one", work=fail, keep_s=0),
        script.Part(name="two", work=lambda session, share_s: {"value": 2}, keep_s=0),
    )
    script.run_parts(session(tmp_path), parts)
    result = json.loads((tmp_path / "gpu.json").read_text())
    assert result["one"]["failed"] == "RuntimeError: no such luck"
    assert result["two"]["found"] == {"value": 2}


def test_a_part_leaves_later_ones_their_share(tmp_path, monkeypatch):
    monkeypatch.setattr(script.time, "monotonic", lambda: 50.0)
    shares = {}

    def note(name):
        def work(session, share_s):
            shares[name] = share_s
            return {}

        return work

    parts = (
        script.Part(name="big", work=note("big"), keep_s=30),
        script.Part(name="none", work=note("none"), keep_s=1000),
        script.Part(name="small", work=note("small"), keep_s=0),
    )
    one = session(tmp_path)
    one.started_s = 50.0
    script.run_parts(one, parts)
    assert shares == {"big": 70, "small": 100}
    assert "for later parts" in json.loads((tmp_path / "gpu.json").read_text())["none"]["stopped"]


def test_cells_stop_at_the_end_of_their_share(tmp_path):
    one = session(tmp_path)
    one.result["gate"] = {"found": {"sdpa bfloat16": {"passed": True}}}
    found = script.train_at("study-shape", script.STUDY_SHAPE)(one, script.WINDOW_S)
    assert found["stopped"].startswith("before train sdpa block 0")
    assert read_run(tmp_path / "study-shape").records == ()


def test_a_mechanism_that_failed_its_gate_is_not_timed(tmp_path):
    one = session(tmp_path)
    one.result["gate"] = {"found": {"sdpa bfloat16": {"passed": False}}}
    found = script.train_at("study-shape", script.STUDY_SHAPE)(one, 60)
    assert found["summary"] == {}
    assert read_run(tmp_path / "study-shape").records == ()
