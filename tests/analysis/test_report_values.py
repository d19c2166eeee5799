"""What figures show, as numbers: fronts, block ratios, curves, parts of memory and FLOPs, power, data movement."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.report_run import full_run
from wattention.analysis.curves import POINTS, loss_curves
from wattention.analysis.data_movement import data_movement
from wattention.analysis.differences import block_ratios
from wattention.analysis.flop_parts import flop_parts
from wattention.analysis.memory_parts import memory_parts
from wattention.analysis.method import command_to_repeat, command_words
from wattention.analysis.pareto import pareto_front
from wattention.analysis.power import mean_power
from wattention.core.attended import AttendedPairs
from wattention.core.quantities import Absent
from wattention.core.records import CellRecord


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return full_run(tmp_path_factory.mktemp("values") / "r")


def training(run, label="flash", block=0):
    return next(r for r in run.records if (r.key.kind, r.key.mechanism, r.key.block) == ("train", label, block))


def test_the_front_keeps_what_is_not_beaten_in_both():
    costs = {"a": (1.0, 9.0), "b": (2.0, 5.0), "c": (3.0, 5.0), "d": (4.0, 1.0), "e": (4.0, 2.0), "f": (4.0, 1.0)}
    assert pareto_front(costs) == ("a", "b", "d", "f")


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=3), st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_whoever_is_not_on_the_front_is_beaten_by_one_that_is(costs):
    front = pareto_front(costs)
    assert front
    for label, ours in costs.items():
        beaten = any(f[0] <= ours[0] and f[1] <= ours[1] and f != ours for f in map(costs.get, front))
        assert beaten != (label in front)
    for one, other in itertools.pairwise(front):
        assert costs[one][0] <= costs[other][0]
        assert costs[one][1] >= costs[other][1]


def test_block_ratios_are_within_blocks(run):
    ratios = block_ratios(run.records, "step_s", "baseline")
    assert set(ratios) == {"flash", "sdpa"}
    assert {block: q.value for block, q in ratios["flash"].items()} == pytest.approx({0: 0.5, 1: 0.5})
    assert ratios["flash"][0].origin == "measured"
    half = [r for r in run.records if (r.key.mechanism, r.key.block) != ("baseline", 1)]
    assert set(block_ratios(half, "step_s", "baseline")["flash"]) == {0}
    assert block_ratios(run.records, "step_s", "missing")["flash"] == {}


def test_curves_count_tokens_seconds_and_joules_from_the_first_step(run):
    curve = loss_curves(run.spec, run.records)["flash"]
    assert len(curve.loss_nats) == 12
    assert curve.tokens[0] == run.spec.tokens_per_step
    assert curve.tokens[-1] == 12 * run.spec.tokens_per_step
    assert curve.time_s[1] == pytest.approx(0.1)  # two warm-up steps took that long
    assert curve.time_s[-1] == pytest.approx(0.1 + 1.005)
    assert curve.energy_j[-1] == pytest.approx(30 * curve.time_s[-1])
    assert all(a < b for a, b in itertools.pairwise(curve.time_s))


def test_a_long_curve_is_averaged_and_a_mean_of_steps_stands_in_for_missing_marks(run):
    record = training(run)
    train = record.phases["train"]
    long = replace(train, samples={"loss_nats": tuple(float(i) for i in range(12 * POINTS))})
    curve = loss_curves(run.spec, [replace(record, phases={**record.phases, "train": long})])["flash"]
    assert len(curve.loss_nats) == POINTS
    assert curve.loss_nats[0] == pytest.approx(5.5)
    assert len(curve.time_s) == POINTS
    unmarked = replace(train, samples={"loss_nats": train.samples["loss_nats"]})
    curve = loss_curves(run.spec, [replace(record, phases={**record.phases, "train": unmarked})])["flash"]
    assert curve.time_s[-1] == pytest.approx(0.1 + 1.0)


def test_memory_parts_add_up_to_the_measured_peak(run):
    parts = memory_parts(run.records)["flash"]
    assert (
        sum(q.value for q in (parts.parameters, parts.gradients, parts.optimiser, parts.attention, parts.rest))
        == parts.peak.value
    )
    assert parts.optimiser.value == 2 * parts.parameters.value == 8 * training(run).facts["parameters"]
    assert (parts.parameters.origin, parts.rest.origin) == ("counted", "measured")


def test_flop_parts_add_up_to_the_models_and_tell_what_is_beyond(run):
    parts = flop_parts(run.spec, run.records)["baseline"]
    model = run.spec.model
    assert parts.mlp.value + parts.head.value == model.forward_flop_per_token + model.backward_flop_per_token
    assert parts.attention.value + parts.mlp.value + parts.head.value == pytest.approx(8e6)
    assert parts.beyond.value == pytest.approx(2e6)


def test_power_is_joules_over_seconds_or_says_why_not(run, tmp_path):
    assert mean_power([training(run)]).value == pytest.approx(30.0)
    without = full_run(tmp_path / "r", energy="absent")
    assert mean_power([training(without)]) == Absent("no counter can be read here")


def with_caches(record: CellRecord, kernel: str) -> CellRecord:
    host = {**record.environment["host"], "caches": [{"level": "1", "size": "32K"}, {"level": "2", "size": "64K"}]}
    environment = {**record.environment, "host": host}
    return replace(record, environment=environment, facts={**record.facts, "kernel": kernel})


def test_data_movement_is_placed_by_the_kernel_that_ran_and_never_below_its_bound(run):
    assert data_movement(run.spec, run.records) is None  # these records name no cache
    kernels = {"baseline": "batched matmul + softmax", "flash": "flash (CPU)", "sdpa": "something new"}
    records = [with_caches(r, kernels[r.key.mechanism]) for r in run.records]
    found = data_movement(run.spec, records)
    assert (found.cache_bytes, found.fast_words) == (65536, 16384)
    assert {label: one.algorithm for label, one in found.movements.items()} == {
        "baseline": "standard",
        "flash": "flash2",
        "sdpa": "",
    }
    for label in ("baseline", "flash"):
        one = found.movements[label]
        assert one.moved.value >= one.bound.value > 0
        assert (one.moved.origin, one.bound.origin) == ("predicted", "bound")
    assert found.movements["baseline"].moved.value > found.movements["flash"].moved.value
    assert "something new" in found.movements["sdpa"].moved.reason


def moved_by(run, attends, kernel="flash (CPU)"):
    records = [with_caches(r, kernel) for r in run.records]
    records = [replace(r, facts={**r.facts, "attends": attends and attends.to_json()}) for r in records]
    found = data_movement(run.spec, records)
    return found and found.movements["baseline"]


def test_data_movement_follows_what_a_mechanism_attends(run):
    plain = AttendedPairs(heads=4, kv_heads=4, key_dim=32, value_dim=32)
    full = moved_by(run, plain)
    shared = moved_by(run, replace(plain, kv_heads=1))
    near = moved_by(run, replace(plain, window=64))
    summed = moved_by(run, replace(plain, form="linear"), "batched matmul")
    for one in (full, shared, near, summed):
        assert one.moved.value >= one.bound.value > 0
    assert near.moved.value < full.moved.value
    assert shared.moved.value < full.moved.value
    assert (near.algorithm, summed.algorithm) == ("flash2", "linear")


def test_hash_rounds_are_further_sequences_and_have_no_bound(run):
    band = AttendedPairs(heads=4, kv_heads=4, key_dim=32, value_dim=32, window=65)
    hashed = moved_by(run, replace(band, rounds=4, data_dependent=True))
    assert hashed.moved.value == 4 * moved_by(run, band).moved.value
    assert "depends on the data" in hashed.bound.reason


def test_padding_for_the_kernel_moves_words_but_does_not_raise_the_bound(run):
    latent = AttendedPairs(heads=4, kv_heads=4, key_dim=48, value_dim=32)
    padded = moved_by(run, replace(latent, kernel_value_dim=48))
    assert padded.moved.value > moved_by(run, latent).moved.value
    assert padded.bound.value == moved_by(run, latent).bound.value


def test_data_movement_is_not_guessed_where_the_record_is_silent(run):
    assert moved_by(run, None) is None


def test_the_command_to_repeat_a_run_writes_elsewhere_and_is_not_a_resumption(run):
    assert command_to_repeat(run.records) == "wattention compare --blocks 2"
    argv = ["/x/__main__.py", "compare", "--out=r", "--text", "my file.txt"]
    resumed = replace(run.records[0], environment={"command": ["/x/wattention", "compare", "--resume"]})
    first = replace(run.records[0], environment={"command": argv})
    assert command_to_repeat([resumed, first]) == "wattention compare --text 'my file.txt'"
    assert command_to_repeat([resumed]) == ""
    assert command_words(["C:\\x\\wattention.exe", "check"]) == "wattention check"
