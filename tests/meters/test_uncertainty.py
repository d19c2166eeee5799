"""Joules with an interval: it covers the truth of devices whose truth is known, and ratios do not pay twice."""

import dataclasses
import functools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.energy_uncertainty import EnergyUncertainty, ratio_half_width, sum_uncertainty, uncertainty_of
from wattention.core.quantities import Absent
from wattention.meters.sensor_class import SENSOR_CLASSES, find_class
from wattention.meters.simulated import DeviceTraits, SimulatedDevice
from wattention.meters.uncertainty import energy_uncertainty

WINDOWS = 1000
NOMINAL, WANTED = 0.95, 0.93


@dataclasses.dataclass(frozen=True)
class Outcome:
    true_j: float
    gain: float
    readings: dict


@functools.cache
def outcomes():
    """1,000 windows of 1,000 devices: gain from the class, steps, jitter, phases and a restless load all drawn."""
    draw = random.Random(20)
    found = []
    for number in range(WINDOWS):
        gain = 1 + draw.gauss(0, find_class("nvml").gain / 1.96)
        device = SimulatedDevice(DeviceTraits(gain=gain, step_s=draw.uniform(0.02, 0.1), read_s=0.01), seed=number)
        panel = device.open_panel()
        device.rest(draw.uniform(0, 1))
        with panel.window() as window:
            start_s, end_s = device.now_s, device.now_s + draw.uniform(5.2, 12)
            while device.now_s < end_s:
                device.advance(draw.uniform(0.01, 0.2), draw.uniform(200, 400))
            true_j = device.true_energy_j(start_s, device.now_s)
        found.append(Outcome(true_j, gain, window.readings))
    return found


@pytest.mark.parametrize("name", ["energy_gpu0_j", "energy_j", "sampled_energy_gpu0_j"])
def test_the_interval_covers_the_truth(name):
    readings = [(one.true_j, one.readings[name]) for one in outcomes()]
    covered = sum(reading.low <= true_j <= reading.high for true_j, reading in readings)
    assert covered / WINDOWS >= WANTED


@pytest.mark.parametrize(
    ("name", "domain", "widest"), [("energy", "gpu0", 0.02), ("sampled_energy", "sampled_gpu0", 0.1)]
)
def test_the_windows_own_part_covers_what_is_left_once_the_boards_gain_is_known(name, domain, widest):
    covered, widths = 0, []
    for one in outcomes():
        part = uncertainty_of(one.readings, domain)
        error_j = one.readings[f"{name}_gpu0_j"].value / one.gain - one.true_j
        covered += abs(error_j) <= part.window_j
        widths.append(part.window_j / one.true_j)
    assert covered / WINDOWS >= WANTED
    assert sum(widths) / WINDOWS < widest  # and it is not bought by being useless


def test_a_ratio_on_one_board_is_covered_by_the_windows_parts_alone():
    draw = random.Random(4)
    covered, tighter = 0, 0
    for number in range(200):
        gain = 1 + draw.gauss(0, find_class("nvml").gain / 1.96)
        device = SimulatedDevice(DeviceTraits(gain=gain, read_s=0.01), seed=number)
        panel = device.open_panel(sampled=False)
        values, parts, truths = [], [], []
        for watts in (300.0, 330.0):
            with panel.window() as window:
                start_s = device.now_s
                device.advance(draw.uniform(5.5, 8), watts)
                truths.append(device.true_energy_j(start_s, device.now_s))
            values.append(window.readings["energy_j"].value)
            parts.append(uncertainty_of(window.readings))
        half = ratio_half_width(values[0], parts[0], values[1], parts[1])
        covered += abs(values[0] / values[1] / (truths[0] / truths[1]) - 1) <= half
        tighter += half < parts[0].shared_j / values[0]
    assert covered / 200 >= WANTED
    assert tighter == 200


positive = st.floats(1e-3, 1e6)


@settings(deadline=None, max_examples=100)
@given(window=positive, gain=st.floats(0, 0.2), energy=positive, scale=st.floats(0.1, 10))
def test_a_common_factor_cancels_in_a_ratio(window, gain, energy, scale):
    pure = EnergyUncertainty(window_j=0.0, shared_j=gain * energy, offset_j=0.0)
    scaled = EnergyUncertainty(window_j=0.0, shared_j=gain * energy * scale, offset_j=0.0)
    assert ratio_half_width(energy, pure, energy * scale, scaled) == 0.0
    noisy = EnergyUncertainty(window_j=window, shared_j=gain * energy, offset_j=0.0)
    assert ratio_half_width(energy, noisy, energy * scale, scaled) == pytest.approx(window / energy)


def test_a_common_offset_cancels_where_both_draw_alike():
    ten = EnergyUncertainty(window_j=0, shared_j=50, offset_j=50)
    twenty = EnergyUncertainty(window_j=0, shared_j=100, offset_j=100)
    assert ratio_half_width(1000, ten, 2000, twenty) == 0  # 100 W for 10 s and for 20 s
    assert ratio_half_width(1000, ten, 4000, twenty) == pytest.approx(0.05 - 0.025)


def test_over_domains_own_parts_add_in_quadrature_and_shared_ones_plainly():
    total = sum_uncertainty(
        [EnergyUncertainty(window_j=3, shared_j=10, offset_j=1), EnergyUncertainty(window_j=4, shared_j=20, offset_j=2)]
    )
    assert total == EnergyUncertainty(window_j=5, shared_j=30, offset_j=3)
    assert total.half_j == pytest.approx((25 + 900) ** 0.5)


def test_the_step_follows_the_load():
    idle_step = {"step_s": 0.1, "step_j": 7.0, "sensor_class": "nvml"}
    assert energy_uncertainty(idle_step, 7000.0, 10.0).window_j == pytest.approx(70.0)
    longest = {**idle_step, "longest_step_s": 0.2}
    assert energy_uncertainty(longest, 7000.0, 10.0).window_j == pytest.approx(140.0)
    # a counter that never moved while it was watched may stand still as long again
    assert energy_uncertainty({"step_s": None, "step_j": None}, 1000.0, 10.0).window_j == pytest.approx(500.0)


def test_a_slow_read_between_counter_and_clock_is_in_the_windows_part():
    about = {"step_s": 0.001, "step_j": 0.0, "sensor_class": "rapl_intel"}
    assert energy_uncertainty(about, 1000.0, 10.0, apart_s=0.05).window_j == pytest.approx(5.0, rel=1e-2)


def test_small_powers_are_held_to_the_offset():
    about = {"step_s": 0.1, "step_j": 1.0, "sensor_class": "nvml"}
    assert energy_uncertainty(about, 200.0, 10.0).shared_j == 50.0  # 20 W: 5 W are more than 5 %
    assert energy_uncertainty(about, 5000.0, 10.0).shared_j == 250.0


def test_parts_come_back_from_readings_and_are_missing_where_there_is_no_energy():
    part = EnergyUncertainty(window_j=1.0, shared_j=2.0, offset_j=0.5)
    for name in ("", "package0"):
        assert uncertainty_of(part.readings(name), name) == part
    assert uncertainty_of({}) is None
    assert uncertainty_of({**part.readings(), "uncertainty_window_j": Absent("x")}) is None


@pytest.mark.parametrize("name", sorted(SENSOR_CLASSES))
def test_every_class_names_its_documents(name):
    sensor = SENSOR_CLASSES[name]
    assert 0 < sensor.gain < 1
    assert sensor.offset_w > 0
    assert len(sensor.source) > 40
    assert sensor.basis in sensor.title


def test_what_has_no_class_gets_the_most_cautious_one():
    assert find_class(None) == find_class("of the year 2035") == SENSOR_CLASSES["unknown"]
    assert find_class(None).gain == max(one.gain for one in SENSOR_CLASSES.values())


def test_a_simulated_device_is_simulated_in_every_source():
    with SimulatedDevice(DeviceTraits()).open_panel().window() as window:
        pass
    sources = [r.source for r in window.readings.values() if not isinstance(r, Absent)]
    assert sources
    assert all(source.startswith("simulated: ") for source in sources)
