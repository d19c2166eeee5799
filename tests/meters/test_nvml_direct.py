"""NVIDIA's counter without zeus: the same joules, said to come another way."""

import importlib
import sys
import types

import pytest

from wattention.meters import sampled_power, zeus_layer
from wattention.meters.base import MeterError


def fake_nvml(*, energy_mj=5_000_000, energy_error=None, power_mw=250_000, driver=True):
    """A module shaped like pynvml, with one GPU."""
    nvml = types.ModuleType("pynvml")

    class NVMLError(Exception):
        def __init__(self, value):
            super().__init__({3: "Not Supported", 4: "Insufficient Permissions", 9: "Driver Not Loaded"}[value])
            self.value = value

    nvml.NVMLError = NVMLError
    nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION = 0, 3, 4
    nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_POWER_SCOPE_GPU = 186, 185, 0
    nvml.energy_mj = energy_mj

    def energy(handle):
        if energy_error is not None:
            raise NVMLError(energy_error)
        return nvml.energy_mj

    def init():
        if not driver:
            raise NVMLError(9)

    def fields(handle, wanted):
        value = types.SimpleNamespace(uiVal=power_mw if power_mw is not None else 0)
        return [types.SimpleNamespace(nvmlReturn=0 if power_mw is not None else 3, value=value) for _ in wanted]

    nvml.nvmlInit = init
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda index: f"handle {index}"
    nvml.nvmlDeviceGetName = lambda handle: "Imaginary H200"
    nvml.nvmlDeviceGetUUID = lambda handle: "GPU-1"
    nvml.nvmlDeviceGetTotalEnergyConsumption = energy
    nvml.nvmlDeviceGetFieldValues = fields
    return nvml


@pytest.fixture
def no_zeus(monkeypatch):
    """Take zeus away and put a fake NVML in place of the real one."""

    def put(nvml):
        real = importlib.import_module

        def find(name):
            if name.partition(".")[0] == "zeus":
                raise ModuleNotFoundError("No module named 'zeus'", name="zeus")
            return real(name)

        monkeypatch.setattr(importlib, "import_module", find)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        return nvml

    return put


def test_joules_without_zeus_say_so(no_zeus, clock, counters):
    nvml = no_zeus(fake_nvml())
    with counters("cuda:0", clock) as panel, panel.window() as window:
        clock.advance(10.0)
        nvml.energy_mj += 2_500_000
    reading = window.readings["energy_gpu0_j"]
    assert reading.value == 2500.0
    assert "NVML read directly, zeus is not installed" in reading.source
    assert "sensor class nvml" in reading.source
    assert "cpu (zeus is not installed" in window.readings["energy_j"].source


def test_a_board_without_the_counter(no_zeus):
    no_zeus(fake_nvml(energy_error=3))
    assert "no total energy counter" in zeus_layer.find_domains("cuda:0").missing["gpu"]


def test_a_board_whose_counter_is_closed_says_how_to_open_it(no_zeus):
    no_zeus(fake_nvml(energy_error=4))
    with pytest.raises(zeus_layer.SensorClosedError) as caught:
        zeus_layer._gpu_domain("cuda:0")
    assert "Insufficient Permissions" in caught.value.path
    assert "usermod -aG" in caught.value.commands[0]


def test_no_driver(no_zeus):
    no_zeus(fake_nvml(driver=False))
    with pytest.raises(MeterError, match=r"NVML: Driver Not Loaded; zeus is not installed"):
        zeus_layer.list_gpus()


def test_the_power_sensor_without_zeus(no_zeus):
    no_zeus(fake_nvml(power_mw=321_000))
    read, sensor = sampled_power.gpu_power_reader(0)
    assert read() == 321.0
    assert sensor == "instantaneous power of Imaginary H200"


def test_a_board_without_a_power_sensor(no_zeus):
    no_zeus(fake_nvml(power_mw=None))
    with pytest.raises(MeterError, match="averaged power sensor: NVMLError: Not Supported"):
        sampled_power.gpu_power_reader(0)
