"""The self-test passes a faithful device, names what is wrong with a faulty one, and says what is not there."""

import io
import itertools
import json

import pytest

from wattention.core.errors import UserError
from wattention.core.quantities import Absent
from wattention.meters.base import MeterError, OpenedMeters
from wattention.meters.selftest import run_selftest
from wattention.meters.selftest_checks import check_memory
from wattention.meters.selftest_load import check_device, open_rig
from wattention.meters.selftest_rig import Rig
from wattention.meters.simulated import START_NS, DeviceTraits, SimulatedDevice
from wattention.meters.square_wave import Pulse, make_square_wave, recover_square_wave
from wattention.meters.window import Panel
from wattention.report.renderers.terminal import print_section
from wattention.report.sections.selftest import selftest_section, worth_sentence


def verdicts(device, *, seconds=None, sampled=True):
    test = run_selftest(device.open_rig(sampled=sampled), seconds=seconds)
    assert test.simulated
    return {check.name: check for check in test.checks}, test


def faults(found):
    return {name for name, check in found.items() if check.verdict == "faulty"}


@pytest.mark.parametrize("seed", range(5))
def test_a_faithful_device_passes_every_check(seed):
    found, test = verdicts(SimulatedDevice(DeviceTraits(), seed=seed))
    assert {check.verdict for name, check in found.items() if name != "estimate"} == {"sound"}
    assert test.flags == ()
    assert {"step gpu0", "linearity gpu0", "A/A gpu0", "integral gpu0", "square wave", "contrast gpu0"} <= set(found)
    assert found["square wave"].readings["duty"].value == pytest.approx(0.3, abs=0.03)
    assert found["square wave"].readings["period_s"].value == pytest.approx(2.0, rel=0.03)
    assert found["contrast gpu0"].readings["busy_w"].value == pytest.approx(300, rel=0.02)
    assert found["step gpu0"].readings["step_s"].value == pytest.approx(0.1, rel=0.15)


class LooksAway(SimulatedDevice):
    """Its sensor sees nothing in the second half of every pulse."""

    def sensor_w(self, at_s):
        seen = super().sensor_w(at_s)
        return seen if super().sensor_w(at_s - 0.3) < 0.6 * self.traits.busy_w else self.traits.idle_w


class Saturates(SimulatedDevice):
    """Its counter loses the share of power that would take it above 40 J/s."""

    def read_counter_j(self):
        return super().read_counter_j() ** 0.8


@pytest.mark.parametrize(
    ("device", "named", "words"),
    [
        (SimulatedDevice(DeviceTraits(lag_s=0.5)), {"square wave"}, "it lags by 0.5"),
        (SimulatedDevice(DeviceTraits(averaging_s=1.0)), {"square wave"}, "averages over more than a pulse"),
        (LooksAway(DeviceTraits()), {"square wave", "integral gpu0"}, "looks away for part of the time"),
        (SimulatedDevice(DeviceTraits(sensor_contrast=0.5)), {"integral gpu0"}, "does not see all of the load"),
        (SimulatedDevice(DeviceTraits(counter_unit=1e-3)), {"integral gpu0"}, "the counter's unit is wrong"),
        (SimulatedDevice(DeviceTraits(counter_unit=1e3)), {"linearity gpu0"}, "its unit is wrong"),
        (SimulatedDevice(DeviceTraits(busy_w=70.0)), {"contrast gpu0", "square wave"}, "does not see the load"),
    ],
    ids=["lags", "averages", "half duty", "half contrast", "kilojoules", "millijoules", "blind"],
)
def test_a_faulty_device_is_named(device, named, words):
    found, _ = verdicts(device)
    assert faults(found) == named
    assert any(words in found[name].finding for name in named)


def test_a_counter_that_is_not_linear_is_not_sound():
    found, _ = verdicts(Saturates(DeviceTraits()))
    assert found["linearity gpu0"].verdict != "sound"


def test_without_time_for_the_counters_they_say_how_long_they_need():
    found, _ = verdicts(SimulatedDevice(DeviceTraits()), seconds=20)
    assert found["linearity gpu0"].verdict == "not measurable"
    assert "repeat the work for at least" in found["linearity gpu0"].finding
    assert found["square wave"].verdict == "sound"


def test_without_a_sampler_the_rest_is_tested():
    found, _ = verdicts(SimulatedDevice(DeviceTraits()), sampled=False)
    assert found["linearity gpu0"].verdict == "sound"
    assert found["square wave"].verdict == "not measurable"
    assert "integral gpu0" not in found


class Dies(SimulatedDevice):
    """It falls off the bus after 40 seconds."""

    def read_counter_j(self):
        if self.now_s > 40:
            raise OSError("GPU has fallen off the bus")
        return super().read_counter_j()


def test_a_counter_that_dies_is_faulty():
    found, test = verdicts(Dies(DeviceTraits()))
    assert found["linearity gpu0"].verdict == "faulty"
    assert "fallen off the bus" in found["linearity gpu0"].finding
    assert any(flag.startswith("counter_lost") for flag in test.flags)
    assert "do not publish joules of this host" in worth_sentence(test)


class SamplerEnds(SimulatedDevice):
    """Its sampling process is killed before the square wave."""

    def since(self, start_ns):
        if self.now_s > 70:
            raise MeterError("the power sampler has ended")
        return super().since(start_ns)

    def cpu_s(self):
        raise MeterError("the power sampler has ended")


def test_a_sampler_that_ends_is_named_and_the_counters_verdicts_stand():
    found, _ = verdicts(SamplerEnds(DeviceTraits()))
    assert faults(found) == {"square wave", "sampler's cost"}
    assert found["linearity gpu0"].verdict == "sound"


def bare_rig(device):
    absent = {"energy_j": Absent("no counter in this toaster"), "sampled_energy_j": Absent("no sensor in it either")}
    panel = Panel(OpenedMeters(opened=(), absent=absent), clock=device, simulated=True)
    return Rig(device="toaster", panel=panel, work=device.work, rest=device.rest, clock=device)


def test_a_machine_without_meters_gets_the_reasons_and_its_clock_tested():
    test = run_selftest(bare_rig(SimulatedDevice(DeviceTraits())))
    found = {check.name: check for check in test.checks}
    assert found["energy counters"].finding == "no counter in this toaster"
    assert found["square wave"].finding == found["sampler's cost"].finding == "no sensor in it either"
    assert found["clock"].verdict == found["linearity time_s"].verdict == "sound"
    assert "energy can only be estimated here" in worth_sentence(test)


def test_a_clock_that_was_set_in_the_middle_is_doubtful():
    device = SimulatedDevice(DeviceTraits())
    true_wall_ns = device.wall_ns
    device.wall_ns = lambda: true_wall_ns() + (3_600_000_000_000 if device.now_s > 2 else 0)
    found = {check.name: check for check in run_selftest(bare_rig(device)).checks}
    assert found["clock"].verdict == "doubtful"


def test_memory_is_compared_with_what_was_touched():
    rig = open_rig("cpu")
    with rig.panel:
        with rig.panel.window() as window:
            kept = rig.touch(64 << 20)
        assert len(kept) == 64 << 20
        check = check_memory(window, 64 << 20)
    if check.verdict == "not measurable":
        pytest.skip(check.finding)
    assert check.verdict == "sound"
    assert check_memory(window, 128 << 20).verdict == "doubtful"


def test_the_real_machine_is_tested_in_a_second_and_says_so_in_json():
    rig = open_rig("cpu")
    with rig.panel:
        test = run_selftest(rig, seconds=1.0)
    data = json.loads(json.dumps(test.to_json()))
    found = {check["name"]: check for check in data["checks"]}
    assert {"clock", "window", "linearity time_s", "linearity cpu_s", "memory", "estimate"} <= set(found)
    assert data["simulated"] is False
    assert found["estimate"]["verdict"] == "doubtful"  # a model is never sound
    estimate = found["estimate"]["readings"]["estimated_energy_j"]
    assert estimate["low"] < estimate["value"] < estimate["high"]


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:1", "mps"])
def test_unknown_devices_are_refused(device):
    with pytest.raises(UserError, match="unknown device"):
        check_device(device)


def test_the_table_prints_every_check_and_stamps_simulations():
    _, test = verdicts(SimulatedDevice(DeviceTraits(counter_unit=1e-3)))
    out = io.StringIO()
    print_section(selftest_section(test), file=out, width=200)
    text = out.getvalue()
    assert "SIMULATED" in text
    assert all(check.finding.split(":")[0][:30] in text for check in test.checks)
    assert "disturbed: energy_gap" in text
    assert "1 faulty" in text


# --- the square wave ---


def test_the_load_keeps_the_beat_even_if_work_takes_longer():
    device = SimulatedDevice(DeviceTraits())
    pulses = make_square_wave(lambda s: device.work(round(1.4 * s * 1e3)), device.rest, device.monotonic_ns)
    distances = [(b.on_ns - a.on_ns) / 1e9 for a, b in itertools.pairwise(pulses)]
    assert distances == pytest.approx([2.0] * 7, abs=1e-3)


def test_edges_between_samples_are_interpolated():
    pulses = [
        Pulse(on_ns=START_NS + i * 2_000_000_000, off_ns=START_NS + i * 2_000_000_000 + 600_000_000) for i in range(8)
    ]

    def watts(at_ns):
        return 300.0 if (at_ns - START_NS) % 2_000_000_000 < 600_000_000 else 100.0

    samples = [(at, watts(at)) for at in range(START_NS - 500_000_000, START_NS + 16_000_000_000, 50_000_000)]
    seen = recover_square_wave(samples, pulses)
    assert seen.period_s == pytest.approx(2.0)
    assert seen.duty == pytest.approx(0.3, abs=0.01)
    assert abs(seen.lag_s) <= 0.05
    assert (seen.low_w, seen.high_w) == (100.0, 300.0)


def test_no_wave_in_constant_power_or_in_too_few_samples():
    pulses = [Pulse(on_ns=i * 2_000_000_000, off_ns=i * 2_000_000_000 + 600_000_000) for i in range(8)]
    assert recover_square_wave([(i * 50_000_000, 100.0) for i in range(400)], pulses) is None
    assert recover_square_wave([(0, 1.0), (1, 2.0)], pulses) is None
