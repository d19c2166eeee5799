"""Devices that do not exist, given to the real zeus layer."""

import importlib

import pytest

from wattention.meters import energy
from wattention.meters.base import OpenedMeters, OpenMeter
from wattention.meters.window import Panel
from wattention.meters.zeus_layer import find_domains


class FakeGpu:
    """Shaped like zeus's NVIDIA GPU: millijoules that grow with every read, milliwatts that do not."""

    def __init__(self, *, step_mj=1000, power_mw=250_000, supported=True):
        self.energy_mj = 0
        self.step_mj, self.power_mw, self.supported = step_mj, power_mw, supported
        self.fails = None

    def get_name(self):
        return "Imaginary H100"

    def supports_get_total_energy_consumption(self):
        return self.supported

    def get_total_energy_consumption(self):
        if self.fails is not None:
            raise self.fails
        self.energy_mj += self.step_mj
        return self.energy_mj

    def get_instant_power_usage(self):
        return self.power_mw

    get_average_power_usage = get_instant_power_usage


@pytest.fixture
def zeus_gpus(monkeypatch):
    """Put a list of GPUs in place of those zeus would find."""
    layer = pytest.importorskip("zeus.device.gpu")

    def put(*gpus):
        holder = type("Gpus", (), {"gpus": list(gpus)})()
        monkeypatch.setattr(layer, "_gpus", holder)
        return gpus

    return put


class FakeRapl:
    """A sysfs tree of RAPL zones in a temporary folder."""

    def __init__(self, root):
        self.root = root / "intel-rapl"
        self.root.mkdir()

    def zone(self, path, *, name, energy_uj, range_uj=262_143_328_850):
        folder = self.root / path
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.set(path, energy_uj)

    def set(self, path, energy_uj):
        (self.root / path / "energy_uj").write_text(f"{energy_uj}\n")


@pytest.fixture
def rapl(tmp_path, monkeypatch):
    """Point zeus's RAPL layer at an empty fake tree; its wrap tracker, a process, is replaced by one that sees none."""
    layer = pytest.importorskip("zeus.device.cpu.rapl")
    cpus = importlib.import_module("zeus.device.cpu")
    tree = FakeRapl(tmp_path)
    monkeypatch.setattr(layer, "RAPL_DIR", str(tree.root))
    monkeypatch.setattr(cpus, "_cpus", None)
    tracker = type("NoWraps", (), {"__init__": lambda self, *a: None, "get_num_wraparounds": lambda self: 0})
    monkeypatch.setattr(layer, "RaplWraparoundTracker", tracker)
    layer.rapl_is_available.cache_clear()
    yield tree
    layer.rapl_is_available.cache_clear()


@pytest.fixture
def fake_gpu():
    """The class of imaginary GPUs."""
    return FakeGpu


class ManualClock:
    """Time that passes when told to, and a little with every reading."""

    def __init__(self, tick_ns=1_000_000):
        self.now_ns = 1_000_000_000_000
        self.tick_ns = tick_ns

    def monotonic_ns(self):
        self.now_ns += self.tick_ns
        return self.now_ns

    def wall_ns(self):
        return 1_700_000_000_000_000_000

    def advance(self, seconds):
        self.now_ns += int(seconds * 1e9)


@pytest.fixture
def clock():
    """A clock to be moved by hand."""
    return ManualClock()


@pytest.fixture
def counters():
    """Open the energy counters that the device layer finds, on a clock moved by hand."""

    def open_panel(device, clock):
        instrument = energy.Counters(find_domains(device), clock=clock)
        opened = (OpenMeter(meter=energy.METER, instrument=instrument),)
        return Panel(OpenedMeters(opened=opened), clock=clock)

    return open_panel
