"""Estimates with their ranges, recordings that play back equal, and the state of a GPU."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, measured
from wattention.meters import gpu_state
from wattention.meters.base import METERS, Interval
from wattention.meters.estimate import (
    PERSONAL,
    SERVER,
    CpuPower,
    Range,
    choose_cpu_power,
    estimate_cpu_energy,
    estimate_gpu_energy,
)
from wattention.meters.replay import Recording, ReplayPanel, load_recording, record
from wattention.meters.window import Panel, RawWindow

TIME, CPU = measured(10.0, "s", "clock"), measured(15.0, "s", "getrusage")


def test_the_estimate_is_the_stated_sum():
    power = CpuPower(idle_w=Range(low=1, central=2, high=3), busy_w=Range(low=4, central=6, high=9), source="test")
    said = estimate_cpu_energy(TIME, CPU, power=power, cores=2)
    assert said.energy_j.value == 10 * 2 * 2 + 15 * (6 - 2)
    assert (said.energy_j.low, said.energy_j.high) == (10 * 2 * 1 + 15 * 3, 10 * 2 * 3 + 15 * 6)
    assert said.idle_j.value + said.above_idle_j.value == said.energy_j.value
    assert said.energy_j.origin == "estimated"
    assert "idle share 40%" in said.energy_j.source


@settings(deadline=None, max_examples=100)
@given(seconds=st.floats(0.001, 1e5), busy=st.floats(0, 1), cores=st.integers(1, 256))
def test_estimates_are_ordered_and_grow_with_work(seconds, busy, cores):
    time_s = measured(seconds, "s", "clock")
    for power in (SERVER, PERSONAL, choose_cpu_power(watts_per_core=3.0), choose_cpu_power(tdp_w=65, cores=cores)):
        less, more = (
            estimate_cpu_energy(time_s, measured(seconds * cores * at, "s", "cpu"), power=power, cores=cores)
            for at in (busy / 2, busy)
        )
        for part in (more.energy_j, more.idle_j, more.above_idle_j):
            assert 0 <= part.low <= part.value <= part.high
        assert less.energy_j.value <= more.energy_j.value


def test_classes_say_what_of_their_range_is_assumed():
    assert all("2023" in power.source and power.source.endswith("assumed") for power in (SERVER, PERSONAL))


def test_the_users_figures_are_named_as_theirs():
    assert choose_cpu_power(tdp_w=280, cores=128).busy_w.central == pytest.approx(2.1875)
    assert "TDP of 280 W over 128 logical cores, given by the user" in choose_cpu_power(tdp_w=280, cores=128).source
    assert "given by the user" in choose_cpu_power(watts_per_core=3.5).source


def test_a_tdp_is_a_range_and_watts_of_a_core_leave_only_the_idle_share_open():
    by_tdp = estimate_cpu_energy(
        TIME, measured(20.0, "s", "getrusage"), power=choose_cpu_power(tdp_w=40, cores=2), cores=2
    )
    assert by_tdp.energy_j.value == 400  # two cores busy for ten seconds at 20 W
    assert (by_tdp.energy_j.low, by_tdp.energy_j.high) == (200, 520)
    assert "busy 50% to 130% of it, assumed" in by_tdp.energy_j.source
    power = choose_cpu_power(watts_per_core=20)
    busy = estimate_cpu_energy(TIME, measured(20.0, "s", "getrusage"), power=power, cores=2).energy_j
    assert (busy.low, busy.value, busy.high) == (400, 400, 400)
    half = estimate_cpu_energy(TIME, measured(10.0, "s", "getrusage"), power=power, cores=2).energy_j
    assert half.low == 200 < half.value < half.high == 300


def test_the_ratio_of_two_estimates_is_that_of_cpu_seconds_where_cores_are_as_busy():
    power = choose_cpu_power(tdp_w=65, cores=2)
    short, long = (
        estimate_cpu_energy(
            measured(s, "s", "clock"), measured(1.5 * s, "s", "getrusage"), power=power, cores=2
        ).energy_j
        for s in (10.0, 25.0)
    )
    for name in ("low", "value", "high"):
        assert getattr(long, name) / getattr(short, name) == pytest.approx(2.5)


@pytest.mark.parametrize("wrong", [{"watts_per_core": 0}, {"tdp_w": -5}, {"watts_per_core": 3, "tdp_w": 65}])
def test_impossible_watts_are_refused(wrong):
    with pytest.raises(UserError):
        choose_cpu_power(**wrong)


def test_no_estimate_without_time():
    said = estimate_cpu_energy(Absent("no clock"), CPU, power=SERVER)
    assert said.energy_j == Absent("no estimate without time and CPU time: no clock")


def test_the_gpu_estimate_lies_between_idle_and_the_limit():
    idle = estimate_gpu_energy(TIME, power_limit_w=400, utilisation=0)
    busy = estimate_gpu_energy(TIME, power_limit_w=400, utilisation=1)
    assert 0 < idle.low <= idle.value <= idle.high < busy.value <= busy.high == 4000
    with pytest.raises(UserError, match="0 <= utilisation <= 1"):
        estimate_gpu_energy(TIME, power_limit_w=400, utilisation=40)


def recorded():
    with Panel.open("cpu", ["clock", "cpu", "rss", "disturbance", "cuda_memory"]) as panel:
        cost = panel.measure_own_cost(repeats=2)
        windows = []
        for size in (1_000, 300_000):
            with panel.window() as window:
                sum(range(size))
            windows.append(window)
        return windows, record(windows, panel, cost)


def test_a_recording_plays_back_equal_and_is_stamped_simulated(tmp_path):
    windows, recording = recorded()
    recording.save(tmp_path / "run.json")
    panel = ReplayPanel(load_recording(tmp_path / "run.json"))
    assert panel.measure_own_cost() == recording.own_cost
    for original in windows:
        with panel.window() as again:
            pass
        assert again.simulated
        assert again.started_utc == original.started_utc
        assert again.readings.keys() == original.readings.keys()
        for name, reading in original.readings.items():
            if isinstance(reading, Absent):
                assert again.readings[name] == reading
            else:
                marked = dataclasses.replace(reading, source=f"simulated: {reading.source}")
                assert again.readings[name] == marked
        assert [flag.kind for flag in again.flags] == [flag.kind for flag in original.flags]
    with pytest.raises(UserError, match="the recording is over"), panel.window():
        pass


def test_a_recording_can_be_played_in_a_loop():
    _, recording = recorded()
    panel = ReplayPanel(recording, loops=3)
    times = []
    for _ in range(6):
        with panel.window() as window:
            pass
        times.append(window.readings["time_s"].value)
    assert times == times[:2] * 3


def test_faults_are_put_in_by_editing_samples():
    facts = {"device": "card", "counter": "c", "wrap_j": None, "in_total": True, "step_s": 0.1, "step_j": 10.0}
    second = 1_000_000_000

    def window(after):
        return RawWindow(
            wall_ns=0,
            interval=Interval(start_ns=0, end_ns=10 * second),
            facts={"energy": {"domains": {"gpu0": facts}, "missing": {}}},
            samples={"energy": ({"gpu0": {"j": 900.0, "at_ns": 0}}, after)},
            failed=None,
        )

    good = {"gpu0": {"j": 2000.0, "at_ns": 10 * second}}
    backwards = {"gpu0": {"j": 100.0, "at_ns": 10 * second}}
    panel = ReplayPanel(Recording(windows=(window(good), window(backwards), window(None)), absent={}, own_cost={}))
    kinds, readings = [], []
    for _ in range(3):
        with panel.window() as played:
            pass
        kinds.append([flag.kind for flag in played.flags])
        readings.append(played.readings["energy_j"])
    assert readings[0].value == 1100.0
    assert isinstance(readings[1], Absent)
    assert isinstance(readings[2], Absent)
    assert kinds == [[], ["counter_backwards"], ["meter_lost"]]


@pytest.mark.parametrize("content", ["", "[]", '{"windows": []}', "not json"])
def test_files_that_are_no_recordings_are_refused(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(UserError, match="not a recording"):
        load_recording(path)
    path.write_text(json.dumps({"schema": 99}))
    with pytest.raises(UserError, match="another schema"):
        load_recording(path)
    with pytest.raises(UserError, match="empty recording"):
        ReplayPanel(Recording(windows=(), absent={}, own_cost={}))


def gpu_sample(**changes):
    sample = {"temperature": 60, "sm_clock_mhz": 1980, "memory_clock_mhz": 2600, "power_limit_mw": 700_000}
    sample |= {"reasons": 0x1, "power_held_ns": 0, "heat_held_ns": 0, "processes": [10]}
    return {**sample, **changes}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, []),
        ({"heat_held_ns": 1_000_000_000}, ["thermal_throttle"]),
        ({"power_held_ns": 9_000_000_000}, ["power_cap"]),
        ({"reasons": 0x44}, ["throttle_reason"]),
        ({"processes": [10, 11]}, ["gpu_company"]),
        ({"processes": [999]}, []),  # another numbering, inside a container
        ({"processes": [998, 999]}, ["gpu_company"]),
        ({"heat_held_ns": None, "processes": None, "reasons": None}, []),
    ],
)
def test_what_disturbs_a_gpu_is_flagged(changes, kinds):
    facts = {"gpu": 0, "name": "card", "own_process": 10}
    interval = Interval(start_ns=0, end_ns=10_000_000_000)
    said = gpu_state.METER.interpret(facts, gpu_sample(), gpu_sample(**changes), interval)
    assert [flag.kind for flag in said.flags] == kinds
    assert set(said.readings) == set(gpu_state.METER.readings)
    assert said.readings["gpu_clock_hz"].value == 1.98e9
    assert said.readings["gpu_power_limit_w"].value == 700.0


@pytest.mark.parametrize("name", METERS.names())
def test_every_meter_file_keeps_the_contract(name):
    meter = METERS.load(name)
    assert meter.name == name
    assert meter.readings
    assert meter.origin == "measured"
    for device in ("cpu", "cuda:0"):
        missing = meter.available(device)
        if missing is None:
            continue
        assert missing.reason
        assert set(meter.absent(missing.reason)) == set(meter.readings)
        assert not isinstance(meter.absent(missing.reason)[meter.readings[0]], Quantity)
