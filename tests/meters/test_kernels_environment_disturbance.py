"""Which kernel ran, what is recorded of the machine, and when company is flagged."""

import json
import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from wattention.core.quantities import Absent
from wattention.meters import disturbance, environment
from wattention.meters.base import Interval
from wattention.meters.kernels import record_kernels, title_of_kernels
from wattention.meters.window import Panel

Q = torch.randn(1, 2, 64, 16)


@pytest.mark.parametrize(
    ("attend", "title"),
    [
        (lambda: functional.scaled_dot_product_attention(Q, Q, Q, is_causal=True), "flash (CPU)"),
        (lambda: functional.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.5), "math"),
        (lambda: torch.softmax(Q @ Q.mT, -1) @ Q, "batched matmul + softmax"),
        (lambda: Q @ (Q.mT @ Q), "batched matmul"),
        (lambda: torch.nn.Linear(16, 16)(Q[0]), "none recognised"),
    ],
)
def test_the_kernel_that_really_ran(attend, title):
    assert title_of_kernels(record_kernels(attend)) == title


def test_raw_names_are_recorded():
    names = record_kernels(lambda: functional.scaled_dot_product_attention(Q, Q, Q))
    assert names == ("aten::_scaled_dot_product_flash_attention_for_cpu",)


@pytest.mark.parametrize(
    ("raw", "title"),
    [
        (["aten::_scaled_dot_product_cudnn_attention", "cudnn_generated_fort_native_sdpa_sm90_fprop"], "cuDNN"),
        (["void pytorch_flash::flash_fwd_kernel<...>"], "flash"),
        (["fmha_cutlassF_f32_aligned_64x64_rf_sm80"], "memory-efficient"),
        (["aten::_scaled_dot_product_efficient_attention", "aten::bmm"], "memory-efficient"),
        ([], "none recognised"),
    ],
)
def test_names_of_device_kernels(raw, title):
    assert title_of_kernels(raw) == title


def test_profiling_writes_nothing_to_the_users_terminal():
    code = "import torch; from wattention.meters.kernels import record_kernels; record_kernels(lambda: torch.ones(3))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_the_environment_is_json_and_names_what_matters():
    record = environment.record_environment(device="cpu", seeds={"model": 7}, command=["wattention", "compare"])
    assert json.loads(json.dumps(record)) == record
    assert record["seeds"] == {"model": 7}
    assert record["command"] == ["wattention", "compare"]
    assert record["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert record["torch"]["threads"] == torch.get_num_threads()
    assert record["host"]["memory_bytes"] > 0
    assert record["host"]["cores_logical"] == os.cpu_count()
    assert set(record["code"]) in ({"commit", "dirty"}, {"absent"})


def test_only_named_variables_are_kept(monkeypatch):
    monkeypatch.setenv("MY_SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    record = environment.record_environment()
    assert "hunter2" not in json.dumps(record)
    assert record["variables"]["MALLOC_ARENA_MAX"] == "1"


def run_git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_the_commit_is_of_the_checkout_that_tracks_the_code(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert "does not run from a git checkout" in environment._commit(package)["absent"]
    run_git(tmp_path, "init")
    # a checkout around the code that does not track it: a virtual environment inside another project
    assert "does not run from a git checkout" in environment._commit(package)["absent"]
    run_git(tmp_path, "add", "package")
    run_git(tmp_path, "commit", "-m", "first")
    clean = environment._commit(package)
    assert len(clean["commit"]) == 40
    assert clean["dirty"] is False
    (package / "more.py").write_text("")
    assert environment._commit(package)["dirty"] is True


def company(busy_s, own_s, steal_s=0.0):
    return {
        "busy_s": busy_s,
        "steal_s": steal_s,
        "user_s": own_s,
        "system_s": 0.0,
        "faults": 0,
        "living_user_s": 0.0,
        "living_system_s": 0.0,
        "load_1min": 1.5,
        "core_clock_hz": None,
    }


@pytest.mark.parametrize(
    ("busy_s", "own_s", "steal_s", "share", "kinds"),
    [
        (10.0, 10.0, 0.0, 0.0, []),
        (10.8, 10.0, 0.0, 0.04, []),
        (15.0, 10.0, 0.0, 0.25, ["company"]),
        (10.0, 10.0, 1.0, 0.0, ["steal"]),
        (9.99, 10.0, 0.0, 0.0, []),  # ticks may lag behind our own time
    ],
)
def test_company_is_what_the_tree_did_not_use(busy_s, own_s, steal_s, share, kinds):
    interval = Interval(start_ns=0, end_ns=10_000_000_000)
    facts = {"cores": 2, "tick_s": 0.01}
    said = disturbance.METER.interpret(facts, company(0, 0), company(busy_s, own_s, steal_s), interval)
    reading = said.readings["other_cpu_share"]
    assert reading.value == pytest.approx(share)
    assert reading.low <= reading.value <= reading.high
    assert [flag.kind for flag in said.flags] == kinds


def test_a_short_window_has_no_share_rather_than_a_wrong_one():
    interval = Interval(start_ns=0, end_ns=20_000_000)
    said = disturbance.METER.interpret({"cores": 2, "tick_s": 0.01}, company(0, 0), company(5, 0), interval)
    assert isinstance(said.readings["other_cpu_share"], Absent)
    assert said.flags == ()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/stat is Linux only")
def test_the_real_machine_answers():
    with Panel.open("cpu", ["disturbance"]) as panel, panel.window() as window:
        sum(range(5_000_000))
    assert window.readings["load_1min"].value >= 0
    assert set(disturbance.METER.readings) <= set(window.readings)
