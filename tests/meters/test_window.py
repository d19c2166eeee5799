"""The order of reads, failures inside and the cost of the window."""

import pytest

from wattention.core.quantities import Absent, Quantity, measured
from wattention.meters.base import Flag, Interpretation, Meter, MeterError, OpenedMeters, OpenMeter, open_meters
from wattention.meters.window import MeasuringWindow, Panel


class Script:
    """A clock, a device and any number of instruments that write what happens into one list."""

    def __init__(self, step_ns=1_000_000_000):
        self.events = []
        self._now_ns = 0
        self._step_ns = step_ns

    def monotonic_ns(self):
        self.events.append("clock")
        self._now_ns += self._step_ns
        return self._now_ns

    def wall_ns(self):
        return 1_700_000_000_000_000_000

    def synchronise(self):
        self.events.append("synchronise")

    def meter(self, name, *, fails_on=None, closeness=0):
        events = self.events

        class Fake:
            value = 0

            def __init__(self):
                self.facts = {"name": name}

            def arm(self):
                self._do("arm")

            def start(self):
                return self._do("start")

            def stop(self):
                return self._do("stop")

            def _do(self, what):
                events.append(f"{what} {name}")
                if fails_on == what:
                    raise MeterError("the sensor fell off")
                Fake.value += 3
                return {"value": Fake.value}

            def close(self):
                events.append(f"close {name}")

        def interpret(facts, before, after, interval):
            change = after["value"] - before["value"]
            flags = (Flag(kind="noted", message=name),)
            return Interpretation(readings={name: measured(change, "tick", facts["name"])}, flags=flags)

        record = Meter(
            name=name,
            title=name,
            readings=(name,),
            unit="tick",
            kind="counter",
            origin="measured",
            available=lambda device: None,
            open=lambda device: Fake(),
            interpret=interpret,
            closeness=closeness,
        )
        return OpenMeter(meter=record, instrument=Fake())


def test_reads_are_mirrored_around_the_work_and_nothing_else_stands_between_the_clock_readings():
    script = Script()
    meters = [script.meter("outer"), script.meter("inner")]
    with MeasuringWindow(meters, synchronise=script.synchronise, clock=script) as window:
        script.events.append("WORK")
    assert script.events == [
        *("arm outer", "arm inner", "synchronise", "start outer", "start inner", "clock"),
        "WORK",
        *("synchronise", "clock", "stop inner", "stop outer"),
    ]
    assert window.readings["time_s"] == measured(1.0, "s", "CLOCK_MONOTONIC (time.perf_counter_ns)")
    assert window.readings["outer"].value == 3
    assert [flag.message for flag in window.flags] == ["outer", "inner"]
    assert window.failed is None
    assert window.started_utc == "2023-11-14T22:13:20.000+00:00"


def test_an_exception_inside_still_closes_in_order_and_marks_the_window_failed():
    script = Script()
    window = MeasuringWindow([script.meter("m")], synchronise=script.synchronise, clock=script)
    with pytest.raises(ZeroDivisionError), window:
        _ = 1 / 0
    assert script.events[-3:] == ["synchronise", "clock", "stop m"]
    assert window.failed == "ZeroDivisionError: division by zero"
    assert isinstance(window.readings["time_s"], Quantity)
    assert window.to_json()["failed"] == window.failed


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_closes_the_window_too(signal):
    script = Script()
    window = MeasuringWindow([script.meter("m")], clock=script)
    with pytest.raises(signal), window:
        raise signal
    assert window.failed is not None
    assert script.events[-1] == "stop m"


def test_work_that_fails_late_at_the_device_fails_the_window():
    script = Script()
    calls = []

    def synchronise():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("illegal address")

    window = MeasuringWindow([script.meter("m")], synchronise=synchronise, clock=script)
    with pytest.raises(RuntimeError, match="illegal address"), window:
        pass
    assert window.failed == "RuntimeError: illegal address"
    assert script.events[-1] == "stop m"


@pytest.mark.parametrize("moment", ["arm", "start", "stop"])
def test_a_meter_that_is_lost_becomes_absent_and_the_others_go_on(moment):
    script = Script()
    meters = [script.meter("good"), script.meter("bad", fails_on=moment)]
    with MeasuringWindow(meters, clock=script) as window:
        pass
    assert window.readings["bad"] == Absent("bad could not be read: the sensor fell off")
    assert window.readings["good"].value == 3
    assert "meter_lost" in {flag.kind for flag in window.flags}


def test_a_clock_that_runs_backwards_gives_no_time():
    script = Script(step_ns=-5_000_000_000)
    with MeasuringWindow(clock=script) as window:
        pass
    assert window.readings["time_s"] == Absent("the monotonic clock went backwards by 5 s")
    assert [flag.kind for flag in window.flags] == ["clock_backwards"]


def test_simulated_windows_say_so_in_every_source():
    script = Script()
    with MeasuringWindow([script.meter("m")], clock=script, simulated=True) as window:
        pass
    assert all(reading.source.startswith("simulated: ") for reading in window.readings.values())
    assert window.to_json()["simulated"] is True


def test_own_cost_is_the_median_of_empty_windows_and_leaves_the_first_out():
    script = Script()
    panel = Panel(OpenedMeters(opened=(script.meter("m"),)), clock=script)
    cost = panel.measure_own_cost(repeats=3)
    # every clock reading advances the script by 1 s: one step inside, three in all
    assert cost["inside_s"].value == 1.0
    assert cost["around_s"].value == 2.0
    assert script.events.count("start m") == 4


def test_the_real_meters_of_this_machine_open_measure_and_close():
    with Panel.open("cpu", ["clock", "cpu", "rss"]) as panel:
        cost = panel.measure_own_cost()
        with panel.window() as window:
            sum(range(1000))
    assert cost["inside_s"].value >= 0
    assert window.readings["time_s"].value > 0
    assert {"cpu_s", "peak_rss_bytes", "suspended_s"} <= set(window.readings)
    assert window.flags == ()


def test_a_meter_for_another_device_is_absent_with_the_reason():
    opened = open_meters("cpu", ["cuda_memory"])
    assert opened.opened == ()
    assert "the work runs on cpu" in opened.absent["cuda_peak_allocated_bytes"].reason
