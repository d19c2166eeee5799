"""Bad conditions, with scripted clocks and devices: each is flagged by its own kind, and nothing is mended silently."""

import pytest

from wattention.core.quantities import Absent
from wattention.meters import disturbance, gpu_state
from wattention.meters.base import METERS, Interval, OpenedMeters, OpenMeter
from wattention.meters.clock import ClockWatch
from wattention.meters.window import Panel

SECOND = 1_000_000_000


class ThreeClocks:
    """CLOCK_MONOTONIC, CLOCK_BOOTTIME and the wall clock of one machine, moved by a script."""

    def __init__(self, *, boottime=True):
        self.monotonic, self.boot, self.wall = 50 * SECOND, 80 * SECOND, 1_700_000_000 * SECOND
        self.boottime = boottime

    def run(self, seconds):
        self.monotonic += int(seconds * SECOND)
        self.boot += int(seconds * SECOND)
        self.wall += int(seconds * SECOND)

    def sleep(self, seconds):
        self.boot += int(seconds * SECOND)
        self.wall += int(seconds * SECOND)

    def set_wall(self, seconds):
        self.wall += int(seconds * SECOND)

    def monotonic_ns(self):
        return self.monotonic

    def wall_ns(self):
        return self.wall

    def read(self):
        boot = self.boot if self.boottime else None
        return {"monotonic_ns": self.monotonic, "boottime_ns": boot, "wall_ns": self.wall}

    def panel(self):
        opened = (OpenMeter(meter=METERS.load("clock"), instrument=ClockWatch(self.read)),)
        return Panel(OpenedMeters(opened=opened), clock=self)


def script(clocks, *moves):
    with clocks.panel().window() as window:
        for move, seconds in moves:
            getattr(clocks, move)(seconds)
    return window, [flag.kind for flag in window.flags]


@pytest.mark.parametrize(
    ("moves", "kinds", "asleep_s"),
    [
        ([("run", 10)], [], 0),
        ([("run", 4), ("sleep", 3600), ("run", 6)], ["suspended"], 3600),
        ([("run", 4), ("set_wall", 3600), ("run", 6)], ["clock_step"], 0),
        ([("run", 4), ("set_wall", -3600), ("run", 6)], ["clock_step"], 0),
        ([("run", 4), ("sleep", 60), ("set_wall", -7), ("run", 6)], ["suspended", "clock_step"], 60),
        ([("run", 9.995), ("set_wall", 0.004), ("run", 0.005)], [], 0),  # NTP slewing
    ],
)
def test_the_interval_is_what_the_machine_was_awake(moves, kinds, asleep_s):
    window, found = script(ThreeClocks(), *moves)
    assert found == kinds
    assert window.readings["time_s"].value == pytest.approx(10)
    assert window.readings["suspended_s"].value == pytest.approx(asleep_s)


def test_a_system_without_boottime_cannot_tell_sleep_from_a_set_clock_and_says_so():
    window, kinds = script(ThreeClocks(boottime=False), ("run", 10), ("sleep", 3600))
    assert kinds == ["clock_step"]
    assert "no CLOCK_BOOTTIME" in window.readings["suspended_s"].reason


def test_a_monotonic_clock_that_runs_backwards_gives_no_time():
    window, kinds = script(ThreeClocks(), ("run", -5))
    assert isinstance(window.readings["time_s"], Absent)
    assert kinds[0] == "clock_backwards"


def gpu(**changes):
    sample = {"temperature": 60, "sm_clock_mhz": 1980, "memory_clock_mhz": 2600, "power_limit_mw": 700_000}
    sample |= {"reasons": 0x1, "power_held_ns": 0, "heat_held_ns": 0, "processes": [10]}
    return {**sample, **changes}


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ({"processes": [10, 11]}, {}, ["gpu_company"]),  # it ended inside the window
        ({}, {"processes": [10, 11, 12]}, ["gpu_company"]),
        ({"processes": []}, {"processes": [10]}, []),
        ({}, {"power_limit_mw": 400_000}, ["power_limit_changed"]),
        ({"power_limit_mw": None}, {}, []),
        ({"reasons": 0x20}, {}, ["throttle_reason"]),
        ({"reasons": 0x80}, {"heat_held_ns": SECOND}, ["thermal_throttle", "throttle_reason"]),
    ],
)
def test_a_gpu_in_company_or_held_back(before, after, kinds):
    facts = {"gpu": 0, "name": "card", "own_process": 10}
    said = gpu_state.METER.interpret(facts, gpu(**before), gpu(**after), Interval(start_ns=0, end_ns=10 * SECOND))
    assert [flag.kind for flag in said.flags] == kinds


def machine(**changes):
    idle = {"busy_s": 0.0, "steal_s": 0.0, "user_s": 0.0, "system_s": 0.0, "living_user_s": 0.0, "living_system_s": 0.0}
    return {**idle, "load_1min": 0.1, "core_clock_hz": None, **changes}


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        ({"heat_events": 3}, {"heat_events": 3}, []),
        ({"heat_events": 3}, {"heat_events": 8}, ["cpu_heat"]),
        ({"heat_events": None}, {"heat_events": None}, []),
        ({"quota_held_s": 1.0}, {"quota_held_s": 1.05}, []),
        ({"quota_held_s": 1.0}, {"quota_held_s": 3.0}, ["cpu_quota"]),
        ({}, {"busy_s": 5.0}, ["company"]),  # a recording from before heat and quotas were read
    ],
)
def test_a_processor_held_back(before, after, kinds):
    facts = {"cores": 2, "tick_s": 0.01}
    interval = Interval(start_ns=0, end_ns=10 * SECOND)
    said = disturbance.METER.interpret(facts, machine(**before), machine(**after), interval)
    assert [flag.kind for flag in said.flags] == kinds


def test_heat_and_quota_are_read_from_the_kernels_files(tmp_path, monkeypatch):
    counters = tmp_path / "cpu0" / "thermal_throttle"
    counters.mkdir(parents=True)
    (counters / "core_throttle_count").write_text("4\n")
    (counters / "package_throttle_count").write_text("2\n")
    stat = tmp_path / "cpu.stat"
    stat.write_text("usage_usec 100\nnr_throttled 3\nthrottled_usec 2500000\n")
    monkeypatch.setattr(disturbance, "CPU_FOLDER", tmp_path)
    monkeypatch.setattr(disturbance, "QUOTA_STAT", stat)
    sample = disturbance.METER.open("cpu").start()
    assert (sample["heat_events"], sample["quota_held_s"]) == (6, 2.5)
    stat.unlink()
    assert disturbance.METER.open("cpu").start()["quota_held_s"] is None
