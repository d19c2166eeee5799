"""A whole comparison is recorded and played back: same readings, stamped simulated; absent devices play along."""

import json

import pytest

from fakes.study import Silent
from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity
from wattention.core.run_spec import MeasureSpec
from wattention.meters.replay import replayed_panels
from wattention.meters.window import Panel
from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.local import LocalLauncher
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder

SMALL = {
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 64},
    "data": {"max_bytes": 200_000, "heldout_tokens": 256},
    "training": {"steps": 6, "batch": 2},
    "mechanisms": [{"label": "sdpa", "source": "sdpa"}, {"label": "a/b", "source": "linear"}],
    "blocks": 1,
}


@pytest.fixture(scope="module")
def launcher():
    return LocalLauncher(threads=1, malloc="default")


def compare(launcher, folder, **measure):
    measure = {"lengths": (), "decode_tokens": 4, **measure}
    spec = build_run_spec([DEFAULTS, {**SMALL, "measure": measure}], [], threads=1)
    run = run_comparison(RunFolder(folder), spec, launcher, Silent(), resume=False)
    records = {record.key.mechanism: record for record in run.records if record.key.kind == "train"}
    assert {record.status for record in run.records} == {"ok"}, [record.detail for record in run.records]
    return records, run


@pytest.fixture(scope="module")
def recorded(launcher, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    records, run = compare(launcher, folder / "run", record_meters=folder / "meters")
    assert not any(record.simulated for record in run.records)
    return folder, records


def test_a_run_leaves_one_recording_a_cell(recorded):
    folder, _ = recorded
    assert sorted(path.name for path in (folder / "meters").iterdir()) == ["train-a%2Fb-0.json", "train-sdpa-0.json"]


def test_a_played_run_reads_what_was_recorded_and_is_stamped(launcher, recorded, tmp_path):
    folder, originals = recorded
    records, run = compare(launcher, tmp_path, replay_meters=folder / "meters")
    assert {record.key.kind for record in run.records if record.simulated} == {"train"}
    for label, original in originals.items():
        played = records[label]
        for phase in ("build", "warmup", "train", "evaluate", "prefill", "decode"):
            for name in ("time_s", "cpu_s", "peak_rss_bytes", "minor_faults"):
                before, now = (record.phases[phase].readings[name] for record in (original, played))
                if isinstance(before, Absent):
                    assert now == before
                    continue
                assert now.value == before.value, (phase, name)
                assert now.source == f"simulated: {before.source}"
        # the work itself is done, not played
        assert played.phases["train"].samples["loss_nats"] == original.phases["train"].samples["loss_nats"]


def with_counter(path, target, joules):
    """Add an NVML-shaped counter to a recording: ten seconds and so many joules a window."""
    data = json.loads(path.read_text())
    about = {"device": "H100 of a friend", "counter": "NVML total energy consumption", "wrap_j": None, "in_total": True}
    about |= {"sensor_class": "nvml", "step_s": 0.1, "longest_step_s": 0.1, "step_j": 7.0}
    for window in data["windows"]:
        window["end_ns"] = window["start_ns"] + 10_000_000_000
        window["facts"]["energy"] = {"domains": {"gpu0": about}, "missing": {}}
        ends = (window["start_ns"], 1000.0), (window["end_ns"], 1000.0 + joules)
        window["samples"]["energy"] = [{"gpu0": {"j": j, "at_ns": at}} for at, j in ends]
    data["windows"] *= 3  # a counter asks for windows that a machine without one never opened
    data["absent"].pop("energy_j", None)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(data))


def test_a_device_that_is_not_here_plays_along_healthy_and_faulty(launcher, recorded, tmp_path):
    folder, _ = recorded
    for path in (folder / "meters").iterdir():
        with_counter(path, tmp_path / "meters" / path.name, 3000.0 if "sdpa" in path.name else -50.0)
    alone = {"phase_energy": False} if "phase_energy" in MeasureSpec.model_fields else {}  # no waiting for idle windows
    records, _ = compare(launcher, tmp_path / "run", replay_meters=tmp_path / "meters", **alone)
    healthy = records["sdpa"].phases["energy"].readings["energy_j"]
    assert isinstance(healthy, Quantity)
    assert (healthy.value, healthy.origin) == (3000.0, "measured")
    assert healthy.low < 3000 < healthy.high
    assert healthy.source.startswith("simulated: sum of gpu0")
    train = records["a/b"].phases["train"]
    assert "went backwards by 50 J" in train.readings["energy_j"].reason
    assert "counter_backwards" in {flag["kind"] for flag in train.flags}


def test_a_cell_that_was_not_recorded_says_what_to_do(tmp_path):
    with replayed_panels(tmp_path, "train-flash-0"), pytest.raises(UserError, match="measure.record_meters"):
        Panel.open("cpu")
    with Panel.open("cpu", ["clock"]) as panel:  # outside, the machine's own meters are back
        assert not panel.simulated
