"""From records to windows of seconds, FLOPs and bytes; the figure they make, and what it refuses to say."""

from dataclasses import replace
from pathlib import Path

import pytest

from wattention.analysis.attention_bytes import FastMemory, attention_bytes, find_fast_memory
from wattention.analysis.joule_loads import run_loads
from wattention.analysis.joules import explain_joules
from wattention.analysis.summary import compare_records
from wattention.core.attended import AttendedPairs
from wattention.core.quantities import Absent, measured, predicted
from wattention.core.records import Phase
from wattention.report.figures import joules
from wattention.study.store import read_run

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-run"
WATTS, PER_FLOP, PER_BYTE = 20.0, 40e-12, 2e-9
TRUTH = {"time": WATTS, "flop": PER_FLOP, "bytes": PER_BYTE}
PLAIN = AttendedPairs(heads=4, kv_heads=4, key_dim=32, value_dim=32)
ATTENDS = {
    "gqa": replace(PLAIN, kv_heads=1),
    "linear": replace(PLAIN, form="linear"),
    "sliding_window": replace(PLAIN, window=256),
    "lsh": replace(PLAIN, window=65, rounds=4, data_dependent=True),
    "mla": replace(PLAIN, key_dim=48),
}


@pytest.fixture(scope="module")
def example():
    """The committed run, its training cells with what each mechanism attends."""
    run = read_run(EXAMPLE)

    def tell(record):
        if record.key.kind != "train":
            return record
        attends = ATTENDS.get(record.key.mechanism, PLAIN).to_json()
        return replace(record, facts={**record.facts, "attends": attends})

    return replace(run, records=tuple(tell(record) for record in run.records))


def layer_flop(mechanism, tokens):
    return {"linear": 3e4, "sliding_window": 6e4}.get(mechanism, 20.0 * tokens) * 128 * tokens


def with_counter(run, *, simulated=True, counter=True):
    """The run's records as a machine with an energy counter would leave them, obeying known joules."""
    fast = find_fast_memory(run.spec, run.records)
    first = {r.key.mechanism: r for r in run.records if r.key.kind == "train"}

    def joules_of(time, flop, moved):
        if isinstance(moved, str):
            moved = 1e8
        return measured(WATTS * time + PER_FLOP * flop + PER_BYTE * moved, "J", "a simulated counter")

    def change(record):
        name, phases = record.key.mechanism, dict(record.phases)
        if record.key.kind == "train":
            window, batch = phases["energy"].readings, run.spec.training.batch
            tokens = window["tokens"].value
            flop = phases["train"].readings["hardware_flop_per_token"].value * tokens
            per_layer = attention_bytes(run.spec, first[name], run.spec.model.context, batch, fast)
            passes = tokens / (batch * run.spec.model.context) * run.spec.model.layers
            moved = per_layer if isinstance(per_layer, str) else per_layer * passes
            energy = joules_of(window["time_s"].value, flop, moved) if counter else Absent("no counter")
            phases["energy"] = replace(phases["energy"], readings={**window, "energy_j": energy})
        if record.key.kind == "lengths":
            for length, phase in record.phases.items():
                time, flop = phase.readings["layer_time_s"].value, layer_flop(name, int(length))
                moved = attention_bytes(run.spec, first[name], int(length), 1, fast)
                extra = {
                    "layer_energy_j": joules_of(time, flop, moved) if counter else Absent("no counter"),
                    "layer_hardware_flop": predicted(flop, "flop", "closed form"),
                }
                phases[length] = replace(phase, readings={**phase.readings, **extra})
        return replace(record, phases=phases, simulated=simulated)

    return tuple(change(record) for record in run.records)


def test_an_estimate_gives_back_the_model_it_was_made_of(example):
    found = run_loads(example.spec, example.records)
    assert found.kind == "estimated"
    model = explain_joules(found.loads, ("time", "cpu"))
    assert model.coefficients["time"].value == pytest.approx(2 * 0.74)
    assert model.coefficients["cpu"].value == pytest.approx(3.5 - 0.74)
    assert model.fit_error < 1e-12
    assert model.collinearity.severe


def test_the_figure_of_an_estimate_refuses_to_be_a_finding(example):
    figure = joules.draw(compare_records(example.spec, example.records), example.records)
    assert figure.caption.startswith("Not a finding: no counter was read, and the estimate is 1.48 W x time + 2.76 W")
    assert [view.label for view in figure.views] == ["fit"]
    assert not any("explained" in str(row[0].content) for row in figure.table.rows)


def test_a_counters_joules_are_traced_to_what_they_were_made_of(example):
    idle = {"idle_before": Phase(readings={"energy_j": measured(3.0, "J", "a simulated counter")})}
    records = [
        replace(record, phases={**idle, **record.phases}) if record.key.kind == "lengths" else record
        for record in with_counter(example)
    ]
    found = run_loads(example.spec, records)
    assert found.kind == "measured"
    assert found.simulated
    assert found.fast_memory == FastMemory(size_bytes=2**20, title="one core's L2 cache")
    assert found.left_out == {}
    assert len({load.mechanism for load in found.loads}) == 8
    assert {load.group for load in found.loads} == {"train", "T=256", "T=512", "T=1024", "T=2048", "T=4096"}
    model = explain_joules(found.loads)
    for name, value in TRUTH.items():
        assert model.coefficients[name].value == pytest.approx(value, rel=1e-5)
    assert max(model.errors.values()) < 1e-4


def test_the_figure_of_measured_joules_shares_out_the_difference(example):
    records = with_counter(example)
    figure = joules.draw(compare_records(example.spec, records), records)
    assert figure.caption.startswith("Of the differences in energy between mechanisms, ")
    assert "a mechanism predicted from the others misses by 0% at most" in figure.caption
    assert "SIMULATED records" in figure.how
    assert "Left out" not in figure.how
    bars = figure.views[0].series[0]
    assert bars.x[-1] == "not explained"
    assert sum(bars.y) == pytest.approx(1)
    assert all(low <= y <= high for low, y, high in zip(bars.low, bars.y, bars.high, strict=True))


def test_a_run_without_joules_has_no_figure(example):
    records = with_counter(example, counter=False)
    assert run_loads(example.spec, records) is None
    assert joules.draw(compare_records(example.spec, records), records) is None


def test_a_gpus_bytes_are_counted_against_the_shared_memory_of_its_profile(example):
    spec = example.spec.replace(device="cuda")

    def on(name):
        return [replace(r, environment={**r.environment, "device": {"name": name}}) for r in example.records]

    assert find_fast_memory(spec, on("NVIDIA H200")).size_bytes == 232448
    assert find_fast_memory(spec, on("NVIDIA GeForce RTX 4090")).size_bytes == 101376
    assert find_fast_memory(spec, on("Tesla T4")).size_bytes == 65536
    assert find_fast_memory(spec, on("NVIDIA A100-SXM4-80GB")).title.startswith(
        "the shared memory of one block (NVIDIA A1"
    )
    assert find_fast_memory(spec, on("Some Device")) is None


def test_a_mechanism_whose_record_does_not_tell_its_pairs_is_left_out_with_the_reason(example):
    records = [
        replace(record, facts={key: fact for key, fact in record.facts.items() if key != "attends"})
        if record.key.mechanism == "mla"
        else record
        for record in with_counter(example)
    ]
    found = run_loads(example.spec, records)
    assert found.left_out == {"mla": "its record does not say which pairs it attends"}
    figure = joules.draw(compare_records(example.spec, records), records)
    assert "Left out: mla: its record does not say which pairs it attends" in figure.how


def test_fewer_keys_are_fewer_bytes_and_a_window_bounds_them(example):
    fast = find_fast_memory(example.spec, example.records)
    first = {r.key.mechanism: r for r in example.records if r.key.kind == "train"}

    def moved(name, tokens):
        return attention_bytes(example.spec, first[name], tokens, 1, fast)

    assert moved("gqa", 1024) < moved("flash", 1024) < moved("baseline", 1024)
    assert moved("sliding_window", 16384) < 0.5 * moved("flash", 16384)
    assert attention_bytes(example.spec, None, 256, 1, fast) == (
        "its training cell, which tells its kernel, did not finish"
    )
    assert "no cache" in attention_bytes(example.spec, first["flash"], 256, 1, None)
