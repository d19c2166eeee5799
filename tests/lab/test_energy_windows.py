"""Energy of phases on devices whose true energy is known: repeated, idle subtracted, as uncertain as it says."""

import random
from dataclasses import replace

import pytest

from fakes.simulated_energy import CLASS, Device, cell_spec, panel_of, record_of, stage_of, windows_of
from wattention.analysis.energy import PHASES, TRAIN, energies, ratios, summarise, window_energy
from wattention.core.quantities import Absent, Quantity, counted, measured
from wattention.core.records import Phase
from wattention.lab.phases.energy import Work
from wattention.lab.phases.power_trace import MOST_POINTS, bound_traces
from wattention.meters.base import OpenedMeters
from wattention.meters.window import Panel

BUSY_W, STEP_S, TOKENS = 100.0, 0.25, 64


def train(device, stage, *, steps, watts=BUSY_W):
    with stage.phase("train"):
        for _ in range(steps):
            device.draw(STEP_S, watts)
    stage.add("train", {"tokens": counted(steps * TOKENS, "token", "plan")})


def test_short_training_is_repeated_until_the_counter_resolves_it():
    device = Device()
    stage = stage_of(device)
    windows = windows_of(device, stage)
    windows.watch_idle("before")
    train(device, stage, steps=3)
    windows.of_training(lambda: device.draw(STEP_S, BUSY_W), TOKENS)
    windows.watch_idle("after")
    energy = stage.phases["energy"].readings
    assert isinstance(stage.phases["train"].readings["energy_j"], Absent)
    assert energy["time_s"].value >= 5.5
    assert energy["tokens"].value == energy["repeats"].value * TOKENS
    assert device.slept_s == pytest.approx(11.0 * 1.1)  # two idle windows and the settling before them
    found = window_energy(record_of(stage), TRAIN)
    true_j = BUSY_W * found.time_s.value
    assert found.gross.value == pytest.approx(true_j, abs=BUSY_W * 0.1)
    assert found.net.value == pytest.approx(true_j - 20 * found.time_s.value, abs=BUSY_W * 0.1 + 5)


def test_a_long_window_is_used_as_it_is():
    device = Device()
    stage = stage_of(device)
    train(device, stage, steps=40)
    before_s = device.now_s
    windows_of(device, stage).of_training(pytest.fail, TOKENS)
    assert device.now_s == before_s
    energy = stage.phases["energy"].readings
    assert energy["energy_j"] == stage.phases["train"].readings["energy_j"]
    assert energy["tokens"].value == 40 * TOKENS
    assert "uncertainty_window_j" in energy


def test_every_phase_gets_joules_per_product_and_what_happens_once_says_so():
    device = Device()
    stage = stage_of(device)
    windows = windows_of(device, stage)
    for name in ("build", "decode"):
        with stage.phase(name):
            device.draw(0.5, BUSY_W)
    windows.of_phase("build", Work())
    windows.of_phase("decode", Work(do=lambda: device.draw(0.5, 50), makes="tokens", each=32, note="from a copy"))
    build = stage.phases["energy_build"].readings["energy_j"]
    assert build.reason.startswith("not measurable")
    assert build.reason.endswith("this work happens once in a process, so it is not repeated")
    decode = next(phase for phase in PHASES if phase.name == "decode")
    per_token = summarise(energies({"a": {0: record_of(stage)}}, decode))["a"]
    assert per_token.value == pytest.approx(50 * 0.5 / 32, rel=0.03)
    assert per_token.unit == "J/token"
    assert "from a copy" in stage.phases["energy_decode"].readings["tokens"].source


def test_phases_can_be_left_out_and_training_is_still_measured():
    device = Device()
    stage = stage_of(device, cell_spec(phase_energy=False))
    windows = windows_of(device, stage)
    windows.watch_idle("before")
    train(device, stage, steps=2)
    windows.of_training(lambda: device.draw(STEP_S, BUSY_W), TOKENS)
    windows.of_phase("train", Work(do=pytest.fail))
    assert list(stage.phases) == ["train", "energy"]
    assert device.slept_s == 0
    assert windows.of_pass(pytest.fail, 3)["layer_energy_j"].reason == "not asked for: measure.phase_energy is false"


def without_counter(device, **measure):
    absent = Absent("no counter here")
    panel = Panel(OpenedMeters(opened=(), absent={"energy_j": absent}), clock=device)
    stage = stage_of(device, cell_spec(**measure), panel)
    return stage, windows_of(device, stage)


def test_without_a_counter_nothing_is_waited_for_and_the_estimate_is_marked():
    device = Device()
    stage, windows = without_counter(device)
    windows.watch_idle("before")
    train(device, stage, steps=2)
    stage.add("train", {"cpu_s": measured(0.4, "s", "getrusage")})
    windows.of_training(pytest.fail, TOKENS)
    windows.of_phase("train", Work(do=pytest.fail))
    assert device.slept_s == 0
    assert list(stage.phases) == ["train", "energy"]
    energy = stage.phases["energy"].readings
    assert energy["energy_j"].origin == energy["energy_above_idle_j"].origin == "estimated"
    assert energy["energy_counter_j"] == Absent("no counter here")
    assert windows.of_pass(pytest.fail, 3) == {"layer_energy_j": Absent("no counter here")}


def test_watts_that_the_user_told_estimate_every_phase_and_length():
    device = Device()
    stage, windows = without_counter(device, cpu_watts_per_core=3.5)
    with stage.phase("evaluate"):
        device.draw(1.0, BUSY_W)
    stage.add("evaluate", {"cpu_s": measured(1.0, "s", "getrusage")})
    windows.of_phase("evaluate", Work(do=pytest.fail))
    said = stage.phases["energy_evaluate"].readings["energy_j"]
    assert said.origin == "estimated"
    assert said.low < said.value < said.high
    passes = windows.of_pass(lambda: device.draw(0.1, BUSY_W), 3)
    assert isinstance(passes["layer_energy_j"], Absent)  # this panel reads no CPU seconds
    assert passes["layer_energy_time_s"].value == pytest.approx(0.1)


def test_a_length_is_repeated_too_and_told_per_pass():
    device = Device()
    windows = windows_of(device, stage_of(device))
    found = windows.of_pass(lambda: device.draw(0.02, BUSY_W), 3)
    assert found["layer_energy_j"].value == pytest.approx(2.0, rel=0.03)
    assert found["layer_energy_j"].low < 2.0 < found["layer_energy_j"].high
    assert found["layer_energy_time_s"].value == pytest.approx(0.02)
    assert found["layer_uncertainty_shared_j"].value == pytest.approx(CLASS * found["layer_energy_j"].value)


def test_the_power_trace_lies_inside_its_phases_and_is_bounded():
    device = Device()
    stage = stage_of(device)
    train(device, stage, steps=3000)
    with stage.phase("evaluate"):
        for _ in range(900):
            device.draw(STEP_S, 60.0)
    samples = stage.phases["train"].samples
    assert len(samples["power_w"]) == 3000
    assert samples["window_s"] == pytest.approx((0.0, 750.0))
    assert stage.phases["evaluate"].samples["window_s"] == pytest.approx((750.0, 975.0))
    thin = bound_traces(stage.phases)
    kept = [len(phase.samples["power_w"]) for phase in thin.values()]
    assert MOST_POINTS * 0.9 < sum(kept) <= MOST_POINTS
    for phase in thin.values():
        begin, end = phase.samples["window_s"]
        assert all(begin <= at <= end for at in phase.samples["power_at_s"])
        assert len(phase.samples["power_at_s"]) == len(phase.samples["power_w"])
    assert set(thin["evaluate"].samples["power_w"]) == {60.0}


@pytest.mark.parametrize("points", [0, 1, 7, 1999, 2000, 2001, 9999])
def test_any_trace_fits_the_bound(points):
    phases = {
        name: Phase(samples={"power_at_s": tuple(map(float, range(points))), "power_w": (1.0,) * points})
        for name in ("a", "b", "c")
    }
    thin = bound_traces(phases)
    assert sum(len(phase.samples["power_w"]) for phase in thin.values()) <= max(MOST_POINTS, 0)


RUNS, BLOCKS, NOISE = 1000, 3, 0.02


def run_once(draw):
    """One comparison of two mechanisms: a sensor with one gain, counters at any phase, cells that scatter."""
    gain = 1 + draw.gauss(0, CLASS / 1.96)
    cells = {"a": {}, "b": {}}
    for block in range(BLOCKS):
        for label, watts in (("a", 100.0), ("b", 70.0)):
            device = Device(gain=gain, phase_s=draw.random())
            stage = stage_of(device, BASE[label], panel_of(device))
            windows = windows_of(device, stage)
            windows.watch_idle("before")
            device.draw(draw.random(), device.idle_w)
            seconds = 0.5 * draw.lognormvariate(0, NOISE)
            with stage.phase("train"):
                for _ in range(12):
                    device.draw(seconds, watts)
            stage.add("train", {"tokens": counted(12, "token", "plan")})
            windows.of_training(pytest.fail, 1)
            windows.watch_idle("after")
            record = record_of(stage)
            cells[label][block] = replace(record, key=replace(record.key, block=block))
    return cells


BASE = {label: cell_spec(label) for label in ("a", "b")}


def test_reported_intervals_cover_the_truth_of_a_thousand_simulated_runs():
    draw = random.Random(20261130)
    hits = dict.fromkeys(("gross a", "gross b", "net a", "net b", "ratio gross", "ratio net"), 0)
    widths = []
    for _ in range(RUNS):
        cells = run_once(draw)
        for net in (False, True):
            kind, idle = ("net", 20.0) if net else ("gross", 0.0)
            found = energies(cells, TRAIN, net=net)
            for label, watts in (("a", 100.0), ("b", 70.0)):
                said = summarise(found)[label]
                assert isinstance(said, Quantity)
                hits[f"{kind} {label}"] += said.low <= 0.5 * (watts - idle) <= said.high
            ratio = ratios(found, "a")["b"]
            hits[f"ratio {kind}"] += ratio.low <= (70 - idle) / (100 - idle) <= ratio.high
            widths.append(ratio.high / ratio.low - 1)
    assert min(hits.values()) >= 0.93 * RUNS, hits
    # and not by being useless: a gain that did not cancel would be in every ratio
    assert sorted(widths)[len(widths) // 2] < 0.25
