"""Real ranks under torchrun: their records, their deaths, and their end."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from fakes import torchrun
from wattention.core.errors import UserError
from wattention.study.store import read_run
from wattention.study.world import choose_parallel, find_world

FAULTS = Path(__file__).parent.parent / "fakes" / "mechanisms" / "rank_faults.py"
SMALL = {
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 32},
    "data": {"max_bytes": 200_000, "heldout_tokens": 128},
    "training": {"steps": 4, "batch": 2, "warmup_steps": 1},
    "measure": {"lengths": [], "decode_tokens": 4},
    "blocks": 1,
}
PATIENCE_S = 240


def mechanism(label, fault):
    return {"label": label, "source": str(FAULTS), "settings": {"fault": fault}}


def compare(folder, mechanisms, *options, **fields):
    toml = folder / "run.toml"
    toml.write_text(_toml({**SMALL, **fields, "mechanisms": mechanisms}))
    return torchrun.start(
        2, "-m", "wattention", "compare", "--config", str(toml), "--out", str(folder / "run"), *options, cwd=folder
    )


def _toml(fields):
    def value(v):
        return (
            json.dumps(v)
            if not isinstance(v, dict)
            else "{" + ", ".join(f"{k} = {value(x)}" for k, x in v.items()) + "}"
        )

    def entry(k, v):
        return f"{k} = [{', '.join(value(x) for x in v)}]" if isinstance(v, list) else f"{k} = {value(v)}"

    return "\n".join(entry(k, v) for k, v in fields.items())


def trained(folder):
    return {r.key.mechanism: r for r in read_run(folder / "run").records if r.key.kind == "train"}


def test_a_rank_that_dies_or_runs_out_of_memory_ends_its_cell_and_the_run_goes_on(tmp_path):
    cells = [mechanism("dies", "kill"), mechanism("starves", "memory"), "sdpa"]
    said = torchrun.finish(process := compare(tmp_path, cells, "--parallel", "fsdp"))
    assert process.returncode == 0, said
    records = trained(tmp_path)
    assert {label: record.status for label, record in records.items()} == {
        "dies": "killed",
        "starves": "out_of_memory",
        "sdpa": "ok",
    }
    assert records["dies"].detail.startswith("rank 1 on ")
    assert "SIGKILL" in records["dies"].detail
    assert records["dies"].facts["parallel"] == {"mode": "fsdp", "ranks": 2, "failed_rank": 1}
    assert "no room for 1 TiB" in records["starves"].detail
    good = records["sdpa"]
    assert good.facts["parallel"]["backend"] == "gloo"
    assert [one["rank"] for one in good.facts["parallel"]["seats"]] == [0, 1]
    train = good.phases["train"].readings
    assert train["tokens"].value == 2 * 2 * 32
    assert train["time_s"].source.startswith("slowest")
    assert train["cpu_s"].source.startswith("sum of 2 ranks")
    assert train["sum_of_peak_rss_bytes"].value > train["peak_rss_bytes"].value
    assert len(good.phases["train"].samples["loss_nats"]) == 4
    assert "cpu x 2 ranks (fsdp)" in said


def test_a_driver_that_dies_leaves_a_record_and_a_run_that_resumes(tmp_path):
    process = compare(tmp_path, [mechanism("lost", "kill driver"), "sdpa"], "--seed", "1")
    said = torchrun.finish(process)
    assert process.returncode != 0
    lost = trained(tmp_path).get("lost")
    assert lost is not None, said
    assert lost.status == "killed"
    assert "rank 1 on" in lost.detail
    assert "died, and torchrun stopped the others" in lost.detail
    assert not _children_of(process.pid)
    again = torchrun.start(2, "-m", "wattention", "compare", "--resume", "--out", str(tmp_path / "run"))
    assert torchrun.finish(again)
    assert again.returncode == 0
    assert {label: record.status for label, record in trained(tmp_path).items()} == {"lost": "killed", "sdpa": "ok"}


def test_a_time_limit_holds_for_all_ranks_together(tmp_path):
    process = compare(tmp_path, [mechanism("slow", "sleep")], "--time-limit", "12")
    said = torchrun.finish(process)
    assert process.returncode == 0, said
    assert trained(tmp_path)["slow"].detail == "stopped after the time limit of 12 s"
    assert trained(tmp_path)["slow"].status == "time_limit"


def test_ctrl_c_ends_all_ranks_and_keeps_what_is_finished(tmp_path):
    process = compare(tmp_path, [mechanism("slow", "sleep")])
    log = tmp_path / "run" / "logs" / "train-0.log.rank1"
    end = time.monotonic() + PATIENCE_S
    while not log.exists() and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(1.0)
    family = _children_of(process.pid)
    assert len(family) >= 4
    os.kill(process.pid, signal.SIGINT)
    said = torchrun.finish(process)
    assert "stopped; everything finished is in" in said
    assert {r.key.kind for r in read_run(tmp_path / "run").records} == {"gate"}
    gone, alive = psutil.wait_procs(family, timeout=15)
    assert not alive
    assert gone


def _children_of(pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def test_several_devices_are_asked_for_under_torchrun_only():
    assert choose_parallel(None, None) == {}
    assert find_world({}) is None
    with pytest.raises(UserError, match="torchrun --nproc-per-node N -m wattention compare --parallel fsdp"):
        choose_parallel("fsdp", None)
    environment = {
        **dict.fromkeys(("RANK", "LOCAL_RANK"), "2"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "4"),
        "MASTER_ADDR": "h",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "x",
    }
    world = find_world(environment)
    assert (world.rank, world.size, world.served, world.attempt) == (2, 4, False, "x/0")
    assert choose_parallel(None, world) == {"parallel": "ddp", "ranks": 4}
    assert choose_parallel("context", world) == {"parallel": "context", "ranks": 4}
    with pytest.raises(UserError, match="ranks without work"):
        choose_parallel("none", world)
