"""Every fault a counter can have, in an NVML-shaped and a RAPL-shaped device, through zeus and the real window.

Each gives the right joules or an absence with a typed warning; never a wrong number and never silence.
"""

import itertools

import pytest

from wattention.core.quantities import Absent
from wattention.meters.base import MeterError
from wattention.meters.energy import Counters
from wattention.meters.zeus_layer import find_domains

RANGE_J = 262_143.328850
LOAD_W, SECONDS = 200.0, 10.0


class NvmlShaped:
    """zeus's GPU: one method that gives millijoules or raises."""

    name, wraps = "gpu0", False

    def __init__(self, zeus_gpus, fake_gpu, rapl):
        (self.gpu,) = zeus_gpus(fake_gpu(step_mj=0))
        self.set(100_000.0)
        ticks = itertools.count()
        still = self.gpu.get_total_energy_consumption

        def moving():  # so that the probe sees steps of 1 mJ: too small to matter
            return still() + next(ticks)

        self.gpu.get_total_energy_consumption = moving

    device = "cuda:0"

    def set(self, joules):
        self.gpu.energy_mj = int(joules * 1e3)

    def freeze(self):
        still = int(self.gpu.energy_mj)
        self.gpu.get_total_energy_consumption = lambda: still

    def vanish(self):
        self.gpu.fails = OSError("GPU has fallen off the bus")

    def refuse(self):
        self.gpu.fails = OSError("Not Supported")

    denied = "Insufficient Permissions"

    def deny(self, monkeypatch):
        self.gpu.fails = OSError(self.denied)


class RaplShaped:
    """A powercap tree that the real zeus reads; psys and memory are in it too."""

    name, wraps, device = "package0", True, "cpu"

    def __init__(self, _zeus_gpus, _fake_gpu, rapl):
        self.tree = rapl
        rapl.zone("intel-rapl:0", name="package-0", energy_uj=0, range_uj=int(RANGE_J * 1e6))
        self.set(100_000.0)

    def set(self, joules):
        self.tree.set("intel-rapl:0", int(joules * 1e6))

    def freeze(self):
        """A file does not move by itself."""

    def vanish(self):
        (self.tree.root / "intel-rapl:0/energy_uj").unlink()

    def refuse(self):
        (self.tree.root / "intel-rapl:0/energy_uj").write_text("\n")  # what a broken driver gives

    def deny(self, monkeypatch):
        real = open

        def closed(path, *args, **kwargs):
            if str(path).endswith("intel-rapl:0/energy_uj"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr("builtins.open", closed)


SHAPES = [NvmlShaped, RaplShaped]


@pytest.fixture(params=SHAPES, ids=["nvml", "rapl"])
def shaped(request, zeus_gpus, fake_gpu, rapl):
    return request.param(zeus_gpus, fake_gpu, rapl)


@pytest.fixture
def measure(shaped, clock, counters):
    """Open the counters, then run a window whose body takes ten seconds and does something to the device."""

    def run(body, *, seconds=SECONDS):
        with counters(shaped.device, clock) as panel, panel.window() as window:
            clock.advance(seconds)
            body()
        return window.readings[f"energy_{shaped.name}_j"], [flag.kind for flag in window.flags], window

    return run


def test_a_good_counter_counts(shaped, measure):
    reading, kinds, window = measure(lambda: shaped.set(100_000 + LOAD_W * SECONDS))
    assert reading.value == pytest.approx(2000, abs=0.2)
    assert reading.low < 2000 < reading.high
    assert kinds == []
    assert window.readings["energy_j"].value == reading.value


def test_one_that_wraps_is_mended_where_its_range_is_known(shaped, measure):
    shaped.set(262_000.0)
    reading, kinds, _ = measure(lambda: shaped.set(262_000.0 + 2000 - RANGE_J))
    if shaped.wraps:
        assert reading.value == pytest.approx(2000, abs=1e-2)
        assert kinds == ["counter_wrapped"]
    else:
        assert isinstance(reading, Absent)  # NVML's 64 bits of millijoules do not wrap in a lifetime
        assert kinds == ["counter_backwards"]


def test_a_wrap_that_zeus_learns_of_too_late_is_not_counted_twice(rapl, clock, counters):
    """The counter wrapped just before the window; zeus's watcher adds the range in the middle of it."""
    package = RaplShaped(None, None, rapl)
    package.set(100.0)
    with counters("cpu", clock) as panel, panel.window() as window:
        clock.advance(SECONDS)
        package.set(100.0 + 2000 + RANGE_J)
    assert window.readings["energy_package0_j"].value == pytest.approx(2000, abs=1e-2)
    assert [flag.kind for flag in window.flags] == ["counter_wrapped"]


def test_one_that_stalls(shaped, measure):
    shaped.freeze()
    reading, kinds, window = measure(lambda: None)
    assert "stood still for" in reading.reason
    assert kinds == ["counter_stalled"]
    assert window.readings["energy_j"].reason.startswith(f"the sum lacks {shaped.name}")


def test_one_that_goes_backwards_a_little(shaped, measure):
    reading, kinds, _ = measure(lambda: shaped.set(99_000.0))
    assert isinstance(reading, Absent)
    # with a known range, a step back looks like a wrap and then claims more than the device can draw
    assert kinds == (["counter_wrapped", "implausible_power"] if shaped.wraps else ["counter_backwards"])


def test_one_that_is_reset(shaped, measure):
    reading, kinds, window = measure(lambda: shaped.set(0.0))
    assert isinstance(reading, Absent)
    assert kinds[-1] == ("implausible_power" if shaped.wraps else "counter_backwards")
    assert isinstance(window.readings["energy_j"], Absent)


def test_one_that_vanishes_in_the_run(shaped, measure):
    reading, kinds, window = measure(shaped.vanish)
    assert isinstance(reading, Absent)
    assert kinds == ["counter_lost"]
    assert window.readings["energy_j"].reason.startswith("the sum lacks")
    assert window.readings["time_s"].value > 0  # the rest of the window stands


def test_one_that_stops_being_supported_in_the_run(shaped, measure):
    reading, kinds, _ = measure(shaped.refuse)
    assert isinstance(reading, Absent)
    assert kinds == ["counter_lost"]


def test_one_whose_permission_is_taken_away_in_the_run(shaped, measure, monkeypatch):
    reading, kinds, _ = measure(lambda: shaped.deny(monkeypatch))
    assert isinstance(reading, Absent)
    assert "ermission" in reading.reason
    assert kinds == ["counter_lost"]


def test_one_that_is_not_supported_at_all(shaped, clock):
    shaped.refuse()
    with pytest.raises(MeterError):
        Counters(find_domains(shaped.device), clock=clock)


def test_one_in_the_wrong_unit(shaped, measure):
    """Millijoules taken for joules: a thousand times the power."""
    reading, kinds, _ = measure(lambda: shaped.set(100_000 + LOAD_W * SECONDS * 1e3 - (RANGE_J if shaped.wraps else 0)))
    assert isinstance(reading, Absent)
    assert kinds[-1] == "implausible_power"
    assert "its unit is wrong" in reading.reason


def test_a_window_with_two_faults_keeps_the_healthy_domain(zeus_gpus, fake_gpu, rapl, clock, counters):
    gpu = NvmlShaped(zeus_gpus, fake_gpu, rapl)
    package = RaplShaped(zeus_gpus, fake_gpu, rapl)
    with counters("cuda:0", clock) as panel, panel.window() as window:
        clock.advance(SECONDS)
        package.set(102_000.0)
        gpu.vanish()
    assert window.readings["energy_package0_j"].value == pytest.approx(2000)
    assert window.readings["energy_j"].reason.startswith("the sum lacks gpu0")
    assert "uncertainty_window_j" not in window.readings  # no sum, so no uncertainty of it
    assert window.readings["uncertainty_window_package0_j"].value > 0


def test_memory_and_platform_beside_the_package(rapl, clock, counters):
    rapl.zone("intel-rapl:0", name="package-0", energy_uj=0)
    rapl.zone("intel-rapl:0/intel-rapl:0:0", name="core", energy_uj=0)
    rapl.zone("intel-rapl:0/intel-rapl:0:1", name="dram", energy_uj=0)
    rapl.zone("intel-rapl:1", name="psys", energy_uj=0)
    with counters("cpu", clock) as panel, panel.window() as window:
        clock.advance(SECONDS)
        rapl.set("intel-rapl:0", 1_000_000_000)
        rapl.set("intel-rapl:0/intel-rapl:0:1", 100_000_000)
        rapl.set("intel-rapl:1", 3_000_000_000)
    readings = window.readings
    assert readings["energy_j"].value == 1100.0
    assert readings["energy_psys_j"].value == 3000.0
    assert "sensor class rapl_dram" in readings["energy_dram0_j"].source
    assert "memory of the host" not in readings["energy_j"].source
    shared = readings["uncertainty_shared_package0_j"].value + readings["uncertainty_shared_dram0_j"].value
    assert readings["uncertainty_shared_j"].value == pytest.approx(shared)
