"""Energy counters: known answers, every fault a counter can have, and precise reasons for what is missing."""

import functools
import importlib
import itertools
import math
import os
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.quantities import Absent, Quantity
from wattention.meters import energy, sampled_power, zeus_layer
from wattention.meters.base import Interval, MeterError, open_meters
from wattention.meters.energy import measure_counter_step
from wattention.meters.power_process import PowerProcess, integrate_power
from wattention.meters.zeus_layer import SensorClosedError

SECOND = 1_000_000_000
TEN_SECONDS = Interval(start_ns=0, end_ns=10 * SECOND)


def domain(**changes):
    facts = {"device": "card", "counter": "counter", "wrap_j": None, "in_total": True, "step_s": 0.1, "step_j": 25.0}
    return {**facts, **changes}


def interpret(before_j, after_j, *, seconds=10, **changes):
    facts = {"domains": {"gpu0": domain(**changes)}, "missing": {}}
    before = {"gpu0": {"j": before_j, "at_ns": 0}}
    after = {"gpu0": {"j": after_j, "at_ns": int(seconds * SECOND)}}
    said = energy.METER.interpret(facts, before, after, TEN_SECONDS)
    return said.readings["energy_gpu0_j"], [flag.kind for flag in said.flags], said.readings["energy_j"]


def test_a_difference_is_uncertain_by_its_step_and_by_its_kind_of_sensor():
    reading, kinds, total = interpret(1000, 3500, sensor_class="nvml")
    half = math.hypot(25, 0.05 * 2500)  # one step; 5 % of the class
    assert (reading.value, reading.low, reading.high) == (2500, 2500 - half, 2500 + half)
    assert reading.origin == "measured"
    assert "25 J of this window (steps of 0.1 s), 125 J shared (sensor class nvml: 5% or 5 W" in reading.source
    assert kinds == []
    assert (total.value, total.low, total.high) == (2500, 2500 - half, 2500 + half)
    assert "not in it: memory of the host; fans" in total.source


@settings(deadline=None, max_examples=200)
@given(
    power_w=st.floats(50, 700),
    step_s=st.floats(0.02, 0.1),
    start_s=st.floats(0, 1),
    seconds=st.floats(5.1, 30),
)
def test_the_range_contains_the_true_energy_of_a_stepping_counter(power_w, step_s, start_s, seconds):
    step_j = power_w * step_s

    def counter(at_s):  # a counter that shows what was used up to its last step
        return int(at_s / step_s) * step_j

    reading, _, _ = interpret(
        counter(start_s), counter(start_s + seconds), seconds=seconds, step_s=step_s, step_j=step_j * (1 + 1e-9)
    )
    assert reading.low <= power_w * seconds <= reading.high


@pytest.mark.parametrize(
    ("seconds", "step_s", "needs"), [(4.9, 0.1, "5 s"), (4.9, None, "5 s"), (9, 0.2, "10 s"), (0.01, 0.001, "5 s")]
)
def test_short_windows_are_not_measurable_and_never_zero(seconds, step_s, needs):
    reading, _, total = interpret(0, 100, seconds=seconds, step_s=step_s)
    assert isinstance(reading, Absent)
    assert reading.reason.startswith("not measurable")
    assert reading.reason.endswith(f"repeat the work for at least {needs}")
    assert isinstance(total, Absent)


@pytest.mark.parametrize(
    ("before_j", "after_j", "changes", "kinds", "value"),
    [
        (260_000, 1_000, {"wrap_j": 262_144}, ["counter_wrapped"], 3_144),
        (500, 100, {}, ["counter_backwards"], None),
        (500, 500, {}, ["counter_stalled"], None),
        (0, 1e9, {}, ["implausible_power"], None),
        # a reset of a counter that can wrap looks like a wrap, and the power gives it away
        (500, 0, {"wrap_j": 262_144}, ["counter_wrapped"], None),
    ],
)
def test_faulty_counters(before_j, after_j, changes, kinds, value):
    reading, found, total = interpret(before_j, after_j, **changes)
    if value is None and "counter_wrapped" in kinds:
        assert "implausible_power" in found
    else:
        assert found == kinds
    if value is None:
        assert isinstance(reading, Absent)
        assert isinstance(total, Absent)
    else:
        assert reading.value == value


def test_a_domain_that_vanishes_takes_the_sum_with_it_but_not_the_others():
    facts = {"domains": {"gpu0": domain(), "package0": domain()}, "missing": {"soc": "none"}}
    before = {name: {"j": 0, "at_ns": 0} for name in facts["domains"]}
    after = {"gpu0": {"trouble": "GPU is lost"}, "package0": {"j": 900, "at_ns": 10 * SECOND}}
    said = energy.METER.interpret(facts, before, after, TEN_SECONDS)
    assert said.readings["energy_package0_j"].value == 900
    assert "GPU is lost" in said.readings["energy_gpu0_j"].reason
    assert said.readings["energy_j"].reason.startswith("the sum lacks gpu0")
    assert [flag.kind for flag in said.flags] == ["counter_lost"]


def test_the_whole_platform_is_not_added_to_its_packages():
    facts = {"domains": {"package0": domain(), "psys": domain(in_total=False)}, "missing": {}}
    before = {name: {"j": 0, "at_ns": 0} for name in facts["domains"]}
    after = {"package0": {"j": 900, "at_ns": 10 * SECOND}, "psys": {"j": 1500, "at_ns": 10 * SECOND}}
    said = energy.METER.interpret(facts, before, after, TEN_SECONDS)
    assert said.readings["energy_j"].value == 900
    assert said.readings["energy_psys_j"].value == 1500


def test_the_step_of_a_counter_is_found():
    ticks = itertools.count()
    now = [0.0]

    def read_j():
        now[0] = next(ticks) * 0.01
        return 7.0 * int(now[0] / 0.1 + 1e-9)

    step = measure_counter_step(read_j, now_s=lambda: now[0], budget_s=5.0)
    assert step.step_s == pytest.approx(0.1)
    assert step.longest_step_s == pytest.approx(0.1)
    assert step.step_j == pytest.approx(7.0)


def test_a_counter_that_does_not_move_has_no_step():
    ticks = itertools.count()
    assert measure_counter_step(lambda: 5.0, now_s=lambda: next(ticks) * 0.1, budget_s=1.0) is None


# --- through the zeus layer ---


def test_a_gpu_through_zeus(zeus_gpus, fake_gpu, clock, counters):
    (gpu,) = zeus_gpus(fake_gpu(step_mj=2000))
    with counters("cuda:0", clock) as panel:
        with panel.window() as window:
            clock.advance(10.0)
            gpu.energy_mj += 500_000
        reading = window.readings["energy_gpu0_j"]
        assert reading.value == 502.0
        assert reading.source.startswith("NVML total energy consumption, Imaginary H100 (matched by index")
        assert "through zeus" in reading.source
        assert "cpu (" in window.readings["energy_j"].source  # RAPL is missing here and the sum says so

        gpu.fails = OSError("GPU has fallen off the bus")
        with panel.window() as window:
            pass
    assert "fallen off the bus" in window.readings["energy_gpu0_j"].reason
    assert [flag.kind for flag in window.flags] == ["counter_lost"]


def test_a_gpu_without_a_counter_says_which_would_have_one(zeus_gpus, fake_gpu):
    zeus_gpus(fake_gpu(supported=False))
    missing = zeus_layer.find_domains("cuda:0").missing["gpu"]
    assert "no total energy counter" in missing
    assert "Volta or newer" in missing


def test_a_counter_that_refuses_leaves_the_others_and_is_named_in_the_sum(zeus_gpus, fake_gpu, rapl, clock, counters):
    (gpu,) = zeus_gpus(fake_gpu())
    gpu.fails = OSError("Not Supported")
    rapl.zone("intel-rapl:0", name="package-0", energy_uj=5_000_000)
    with counters("cuda:0", clock) as panel, panel.window() as window:
        clock.advance(10.0)
        rapl.set("intel-rapl:0", 12_000_000)
    total = window.readings["energy_j"]
    assert total.value == 7.0
    assert "gpu0 (Imaginary H100 lost: OSError: Not Supported)" in total.source


def test_a_gpu_that_zeus_does_not_see(zeus_gpus, fake_gpu):
    zeus_gpus(fake_gpu())
    assert "not among the 1 GPUs" in zeus_layer.find_domains("cuda:3").missing["gpu"]


def test_rapl_domains_through_zeus(rapl, clock, counters):
    rapl.zone("intel-rapl:0", name="package-0", energy_uj=5_000_000)
    rapl.zone("intel-rapl:0/intel-rapl:0:0", name="dram", energy_uj=1_000_000)
    rapl.zone("intel-rapl:1", name="psys", energy_uj=9_000_000)
    with counters("cpu", clock) as panel, panel.window() as window:
        clock.advance(10.0)
        rapl.set("intel-rapl:0", 12_000_000)
        rapl.set("intel-rapl:0/intel-rapl:0:0", 1_500_000)
        rapl.set("intel-rapl:1", 30_000_000)
    values = {name: r.value for name, r in window.readings.items() if name.startswith("energy")}
    assert values == {"energy_package0_j": 7.0, "energy_dram0_j": 0.5, "energy_psys_j": 21.0, "energy_j": 7.5}
    assert window.readings["energy_package0_j"].source.startswith("RAPL package-0, CPU package-0; range 95 %:")


def test_a_rapl_counter_that_wraps_inside_the_window(rapl, clock, counters):
    rapl.zone("intel-rapl:0", name="package-0", energy_uj=262_000_000_000, range_uj=262_143_000_000)
    with counters("cpu", clock) as panel, panel.window() as window:
        clock.advance(10.0)
        rapl.set("intel-rapl:0", 57_000_000)
    assert window.readings["energy_package0_j"].value == pytest.approx(200.0)
    assert [flag.kind for flag in window.flags] == ["counter_wrapped"]


def test_permission_denied_names_the_file_and_how_to_allow_it(rapl, monkeypatch):
    rapl.zone("intel-rapl:0", name="package-0", energy_uj=1)
    rapl.zone("intel-rapl:0/intel-rapl:0:0", name="dram", energy_uj=1)
    closed = rapl.root / "intel-rapl:0/intel-rapl:0:0/energy_uj"
    monkeypatch.setattr(zeus_layer.os, "access", lambda path, mode: path != closed)
    for name in ("ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SensorClosedError) as caught:
        zeus_layer._rapl()
    assert caught.value.path == str(closed)
    now, for_good = caught.value.commands
    assert now == f"sudo chmod a+r {closed} (until the next boot)"
    assert 'RUN+="/bin/chmod a+r /sys%p/energy_uj"' in for_good
    assert "/etc/udev/rules.d/" in for_good
    reason = open_meters("cpu", ["energy"]).absent["energy_j"].reason
    assert reason.startswith(f"{closed} is readable by root only: sudo chmod a+r")
    assert "zeusd" in reason


def test_all_closed_files_are_in_the_command(rapl, monkeypatch):
    for package in range(2):
        rapl.zone(f"intel-rapl:{package}", name=f"package-{package}", energy_uj=1)
    monkeypatch.setattr(zeus_layer.os, "access", lambda path, mode: False)
    monkeypatch.delenv("ZEUSD_SOCK_PATH", raising=False)
    monkeypatch.delenv("ZEUSD_HOST_PORT", raising=False)
    with pytest.raises(SensorClosedError, match=r"energy_uj \(and 1 more\)") as caught:
        zeus_layer._rapl()
    assert caught.value.commands[0].count("energy_uj") == 2


@pytest.mark.skipif(os.path.exists("/sys/class/powercap/intel-rapl"), reason="this machine has RAPL")  # noqa: PTH110
@pytest.mark.parametrize(("virtual", "words"), [(True, "virtual machine"), (False, "modprobe intel_rapl_msr")])
def test_no_powercap_is_explained(virtual, words, monkeypatch):
    rapl_layer = pytest.importorskip("zeus.device.cpu.rapl")
    rapl_layer.rapl_is_available.cache_clear()
    monkeypatch.setattr(zeus_layer, "is_virtual_machine", lambda: virtual)
    reason = open_meters("cpu", ["energy"]).absent["energy_j"].reason
    assert words in reason
    assert "no /sys/class/powercap/intel-rapl" in reason


def without(monkeypatch, *missing):
    real = importlib.import_module

    def find(name):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", find)


def test_without_zeus_the_extra_is_named(monkeypatch):
    without(monkeypatch, "zeus", "pynvml")
    with pytest.raises(MeterError, match=r"pip install 'wattention\[energy\]'"):
        zeus_layer.load_zeus("zeus.device.gpu")
    missing = zeus_layer.find_domains("cuda:0").missing
    assert "pip install 'wattention[energy]'" in missing["cpu"]
    assert "neither zeus nor nvidia-ml-py is installed" in missing["gpu"]


# --- the second opinion ---


def test_the_integral_of_known_power():
    square = [(i * SECOND // 10, 100.0 if (i // 5) % 2 == 0 else 300.0) for i in range(101)]
    assert integrate_power(square, 0, 10 * SECOND) == pytest.approx(2000, rel=0.02)
    ramp = [(i * SECOND, 10.0 * i) for i in range(12)]
    # exact for what is linear, edges between samples included: 5 (10.5^2 - 0.5^2)
    assert integrate_power(ramp, SECOND // 2, 10 * SECOND + SECOND // 2) == pytest.approx(550.0)


def test_no_integral_where_samples_do_not_reach_the_ends():
    samples = [(i * SECOND, 10.0) for i in range(5)]
    assert integrate_power(samples, -SECOND, 3 * SECOND) is None
    assert integrate_power(samples, SECOND, 9 * SECOND) is None
    assert integrate_power(samples, SECOND + 1, SECOND + 2) is None


def constant_reader(watts):
    return (lambda: watts), "constant sensor"


def broken_reader():
    raise RuntimeError("no such sensor")


def test_a_sampler_process_of_its_own():
    process = PowerProcess(functools.partial(constant_reader, 40.0), period_s=0.01)
    try:
        import time

        start_ns = time.perf_counter_ns()
        time.sleep(0.3)
        end_ns = time.perf_counter_ns()
        samples = process.since(start_ns)
    finally:
        process.close()
    assert process.sensor == "constant sensor"
    assert samples[0][0] <= start_ns < end_ns <= samples[-1][0]
    assert integrate_power(samples, start_ns, end_ns) == pytest.approx(40.0 * (end_ns - start_ns) / 1e9)


def test_a_sampler_that_cannot_open_its_sensor_says_why():
    with pytest.raises(MeterError, match="RuntimeError: no such sensor"):
        PowerProcess(broken_reader, period_s=0.01)


def test_a_sampler_that_is_killed_is_a_lost_meter_and_not_a_hang():
    process = PowerProcess(functools.partial(constant_reader, 40.0), period_s=0.01)
    try:
        assert process.cpu_s() >= 0
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(MeterError, match="the power sampler has ended"):
            process.since(0)
            process.since(0)  # the first request may still fit into the pipe
    finally:
        process.close()


def sampled(power_w):
    samples = [[i * SECOND // 10, power_w] for i in range(-1, 103)]
    facts = {"domain": "gpu0", "sensor": "instantaneous power of card", "period_s": 0.1}
    return sampled_power.METER.interpret(facts, {"at_ns": 0}, {"samples": samples}, TEN_SECONDS).readings


@pytest.mark.parametrize(("power_w", "gap", "kinds"), [(250.0, 0.0, []), (437.5, 0.75, ["energy_gap"])])
def test_counter_and_sampler_are_both_reported_with_their_gap(power_w, gap, kinds):
    counter = Quantity(value=2500, unit="J", origin="measured", source="counter")
    readings = {"energy_gpu0_j": counter, **sampled(power_w)}
    assert readings["sampled_energy_gpu0_j"].value == pytest.approx(power_w * 10)
    derived = sampled_power.METER.derive(readings)
    assert derived.readings["energy_gap_gpu0"].value == pytest.approx(gap)
    assert [flag.kind for flag in derived.flags] == kinds


def test_no_gap_is_invented_where_one_side_is_absent():
    assert sampled_power.METER.derive({**sampled(250.0), "energy_gpu0_j": Absent("x")}).readings == {}


def test_the_power_sensor_falls_back_to_the_averaging_one_and_says_so(zeus_gpus, fake_gpu):
    (gpu,) = zeus_gpus(fake_gpu(power_mw=123_000))

    def not_supported():
        raise OSError("Not Supported")

    gpu.get_instant_power_usage = not_supported
    read, sensor = sampled_power.gpu_power_reader(0)
    assert read() == 123.0
    assert sensor == "averaged power of Imaginary H100"
