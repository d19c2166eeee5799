"""Which runs tell something of a point, and what: same model, shape, precision, mechanism and device."""

from dataclasses import replace
from pathlib import Path

import pytest

from wattention.analysis.measured_points import measured_costs, why_no_match
from wattention.analysis.predict import PredictionQuery
from wattention.analysis.summary import compare_records
from wattention.core.specs import ModelSpec
from wattention.hardware.catalog import load_profile
from wattention.study.store import read_run

TINY = ModelSpec.preset("tiny")
POINT = PredictionQuery(model=TINY, mechanism="flash", tokens=1024, batch=2, precision="float32", hardware="mine.toml")


@pytest.fixture(scope="module")
def run():
    return read_run(Path(__file__).parents[2] / "docs" / "example-run")


@pytest.fixture(scope="module")
def flash(run):
    """What the run's own summary says of flash."""
    return next(m for m in compare_records(run.spec, run.records).mechanisms if m.label == "flash").quantities


def calibrated(**conditions):
    return load_profile("cpu-server").model_copy(update={"conditions": conditions})


def test_a_run_of_the_calibrated_host_gives_its_measured_numbers(run, flash):
    assert why_no_match(run.spec, run.records, POINT, calibrated(host="vm", threads="2")) == ""
    found = measured_costs(run.spec, run.records, POINT, "train")
    assert set(found) == {"time", "memory"}, "joules of this run are an estimate, which is no measurement"
    assert found["time"].origin == "measured"
    assert found["time"].value == pytest.approx(flash["step_s"].value / 2048)
    assert found["time"].low < found["time"].value < found["time"].high
    assert found["memory"].value == flash["peak_tensor_bytes"].value


def test_another_shape_or_mechanism_has_no_measurement(run):
    for other in (
        replace(POINT, tokens=512),
        replace(POINT, batch=1),
        replace(POINT, mechanism="examples/uniform.py"),
        replace(POINT, mechanism="sliding_window", settings={"window": 8}),
    ):
        assert measured_costs(run.spec, run.records, other, "train") == {}


def test_prefill_and_decoding_match_the_prompt_of_the_run(run, flash):
    prompt = replace(POINT, tokens=1024 - 32, batch=1)
    prefill = measured_costs(run.spec, run.records, prompt, "prefill")["time"]
    assert prefill.value == pytest.approx(flash["prefill_s"].value / 992)
    decode = measured_costs(run.spec, run.records, prompt, "decode")["time"]
    assert decode.value == flash["decode_s_per_token"].value
    assert measured_costs(run.spec, run.records, POINT, "decode") == {}


@pytest.mark.parametrize(
    ("changes", "conditions", "why"),
    [
        ({}, {}, "no calibrated profile of that host"),
        ({}, {"host": "other"}, "it ran on vm, and the profile was calibrated on other"),
        ({}, {"host": "vm", "threads": "1"}, "it ran with 2 threads, not 1"),
        ({"precision": "bfloat16"}, {"host": "vm"}, "it ran in float32"),
        ({"model": ModelSpec.preset("gpt2")}, {"host": "vm"}, "its model differs in layers, heads, width"),
    ],
)
def test_a_run_that_does_not_match_says_in_what(run, changes, conditions, why):
    assert why in why_no_match(run.spec, run.records, replace(POINT, **changes), calibrated(**conditions))


def test_a_gpu_is_known_by_its_name(run):
    spec = run.spec.replace(device="cuda")
    records = [replace(r, environment={**r.environment, "device": {"name": "NVIDIA H200"}}) for r in run.records]
    assert why_no_match(spec, records, replace(POINT, hardware="H200"), load_profile("h200")) == ""
    assert why_no_match(spec, records, replace(POINT, hardware="l4"), load_profile("l4")) == "it ran on NVIDIA H200"


def test_a_longer_context_is_the_same_model_and_a_replay_is_no_measurement(run):
    longer = replace(POINT, model=TINY.replace(context=8192))
    assert why_no_match(run.spec, run.records, longer, calibrated(host="vm")) == ""
    replays = [replace(record, simulated=True) for record in run.records]
    assert why_no_match(run.spec, replays, POINT, calibrated(host="vm")) == "its records are simulated"
