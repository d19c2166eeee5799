"""Real cells in real processes: whatever happens in one ends in a record."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from wattention.core.quantities import Quantity
from wattention.core.records import CellKey
from wattention.core.run_spec import CellSpec
from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.local import PRELOADED, LocalLauncher

MISBEHAVING = Path(__file__).parent.parent / "fakes" / "mechanisms" / "misbehaving.py"
SMALL = {
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 64},
    "data": {"max_bytes": 200_000, "heldout_tokens": 256},
    "training": {"steps": 6, "batch": 2},
    "measure": {"lengths": (32, 64), "decode_tokens": 4, "length_budget_s": 0.0},
}


@pytest.fixture(scope="module")
def launcher():
    return LocalLauncher(threads=1, malloc="default")


def run(launcher, tmp_path, kind="train", source=str(MISBEHAVING), time_limit_s=None, **settings):
    mechanism = {"label": "m", "source": source, "settings": settings}
    spec = build_run_spec([DEFAULTS, SMALL, {"mechanisms": [mechanism]}], [], threads=1)
    cell = CellSpec(run=spec, key=CellKey(kind=kind, mechanism="m", block=0), order=0)
    seen = []
    record = launcher.run(cell, log=tmp_path / "log", on_progress=seen.append, time_limit_s=time_limit_s)
    assert record.key == cell.key
    return record, seen


def test_what_is_imported_ahead_exists():
    # the server skips a name that it cannot import without a word, and every cell would pay for it
    assert [name for name in PRELOADED if find_spec(name) is None] == []


def test_a_training_cell_measures_every_phase(launcher, tmp_path):
    record, seen = run(launcher, tmp_path, source="sdpa")
    assert record.status == "ok", record.detail
    assert list(record.phases) == ["build", "warmup", "train", "evaluate", "energy", "memory", "prefill", "decode"]
    train = record.phases["train"]
    assert len(train.samples["step_s"]) == train.readings["steps"].value == 4
    assert len(train.samples["loss_nats"]) == 6
    assert sum(train.samples["step_s"]) <= train.readings["time_s"].value
    for phase, name in (
        ("train", "cpu_s"),
        ("train", "peak_rss_bytes"),
        ("memory", "peak_tensor_bytes"),
        ("evaluate", "heldout_bits_per_byte"),
        ("decode", "cache_bytes_per_token"),
    ):
        assert isinstance(record.phases[phase].readings[name], Quantity), name
    assert record.phases["decode"].readings["cache_bytes_per_token"].value == 2 * 32 * 4
    assert record.facts["kernel"] == "flash (CPU)"
    assert record.environment["seeds"] == {"cell": 0, "order": 0}
    assert all(event.tokens_per_s > 0 for event in seen if event.phase == "train")
    assert {"build", "train", "evaluate", "prefill", "decode"} <= {event.phase for event in seen}


def test_a_length_cell_times_and_sizes_every_length(launcher, tmp_path):
    record, _ = run(launcher, tmp_path, kind="lengths", source="baseline")
    assert record.status == "ok", record.detail
    assert list(record.phases) == ["32", "64"]
    for phase in record.phases.values():
        assert phase.readings["layer_time_s"].value > 0
        assert len(phase.samples["layer_step_s"]) >= 3
    peaks = [phase.readings["layer_peak_tensor_bytes"].value for phase in record.phases.values()]
    assert peaks[0] < peaks[1]


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("kill", "killed", "exhausts its memory"),
        ("crash", "error", "ended with code 7 without a record"),
        ("memory", "out_of_memory", "no room for 1 TiB"),
        ("torch memory", "out_of_memory", "can't allocate memory"),
        ("bug", "error", "ZeroDivisionError: division by zero"),
        ("nan", "diverged", "the loss is nan at step 0"),
    ],
)
def test_every_fault_of_a_cell_is_a_record(launcher, tmp_path, fault, status, words):
    record, _ = run(launcher, tmp_path, fault=fault)
    assert record.status == status
    assert words in record.detail


def test_a_cell_that_takes_too_long_is_stopped(launcher, tmp_path):
    record, _ = run(launcher, tmp_path, fault="sleep", time_limit_s=3.0)
    assert record.status == "time_limit"
    assert "3 s" in record.detail


def test_lengths_that_do_not_fit_say_so_and_keep_the_shorter_ones(launcher, tmp_path):
    record, _ = run(launcher, tmp_path, kind="lengths", fault="torch memory")
    assert record.status == "ok"
    reasons = [phase.readings["layer_time_s"].reason for phase in record.phases.values()]
    assert reasons == ["out of memory at 32 tokens", "not tried: 32 tokens did not fit"]


def test_the_output_of_a_failing_cell_is_kept(launcher, tmp_path):
    run(launcher, tmp_path, fault="bug")
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()


def test_same_seed_same_losses(launcher, tmp_path):
    first, again = (run(launcher, tmp_path, source="sdpa")[0] for _ in range(2))
    assert first.phases["train"].samples["loss_nats"] == again.phases["train"].samples["loss_nats"]
