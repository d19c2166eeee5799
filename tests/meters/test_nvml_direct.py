"""NVIDIA's counter without zeus: the same joules, said to come another way."""

import importlib
import sys
import types

import pytest
import torch

from wattention.meters import cuda_memory, gpu_state, sampled_power, zeus_layer
from wattention.meters.base import MeterError, OpenedMeters, OpenMeter
from wattention.meters.clock import SystemClock
from wattention.meters.window import Panel


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
    nvml.NVML_DEVICE_MIG_ENABLE, nvml.mig = 1, 0
    nvml.nvmlDeviceGetMigMode = lambda handle: [nvml.mig, nvml.mig]
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


@pytest.fixture
def torch_sees(monkeypatch):
    """Let torch see a GPU with this UUID."""

    def put(uuid):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace(uuid=uuid))

    return put


def test_torch_and_nvml_are_matched_by_uuid(no_zeus, torch_sees):
    no_zeus(fake_nvml())
    torch_sees("1")  # torch leaves the prefix GPU- out
    position, _, how = zeus_layer.find_gpu("cuda:0")
    assert (position, how.split(",")[0]) == (0, "matched by UUID")


def test_an_instance_of_a_partitioned_gpu_gets_no_counter_of_another(no_zeus, torch_sees):
    nvml = no_zeus(fake_nvml())
    torch_sees("2")
    with pytest.raises(MeterError, match=r"cuda:0 \(2\) is none of the 1 GPUs that can be measured: an instance"):
        zeus_layer.find_gpu("cuda:0")
    torch_sees("1")
    nvml.mig = 1
    assert "one instance (MIG) of a GPU" in zeus_layer.find_domains("cuda:0").missing["gpu"]


def test_uuids_among_the_visible_devices_are_read_without_zeus(monkeypatch, torch_sees):
    pytest.importorskip("zeus.device.gpu")
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    torch_sees("1")
    assert "CUDA_VISIBLE_DEVICES holds UUIDs" in zeus_layer.find_gpu("cuda:0")[2]


def state_nvml(*, new_names):
    """NVML with the calls of the state meter, by their names since driver 535 or before."""
    nvml = fake_nvml()
    nvml.NVML_TEMPERATURE_GPU, nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM = 0, 1, 2
    nvml.NVML_PERF_POLICY_POWER, nvml.NVML_PERF_POLICY_THERMAL = 0, 1

    def unknown(*args):
        raise nvml.NVMLError(3)

    reads = {
        "nvmlDeviceGetTemperatureV": lambda handle, sensor: 71,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x4,
    }
    old = {"nvmlDeviceGetTemperatureV": "nvmlDeviceGetTemperature"}
    old["nvmlDeviceGetCurrentClocksEventReasons"] = "nvmlDeviceGetCurrentClocksThrottleReasons"
    for name, read in reads.items():
        setattr(nvml, name, read if new_names else unknown)  # an old driver does not know the new name
        if not new_names:
            setattr(nvml, old[name], read)
    nvml.nvmlDeviceGetClockInfo = lambda handle, clock: 1980
    nvml.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 700_000
    nvml.nvmlDeviceGetViolationStatus = lambda handle, policy: types.SimpleNamespace(violationTime=0)
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: []
    return nvml


@pytest.mark.parametrize("new_names", [True, False])
def test_the_state_is_read_by_the_names_a_driver_knows(no_zeus, new_names):
    no_zeus(state_nvml(new_names=new_names))
    opened = (OpenMeter(meter=gpu_state.METER, instrument=gpu_state.METER.open("cuda:0")),)
    with Panel(OpenedMeters(opened=opened), clock=SystemClock()) as panel, panel.window() as window:
        pass
    assert window.readings["gpu_temperature_celsius"].value == 71
    assert window.readings["gpu_clock_hz"].value == 1980e6
    assert window.readings["gpu_power_limit_w"].value == 700
    assert any(flag.message.endswith("power limit") for flag in window.flags)


def test_an_allocator_that_does_not_cache_keeps_no_marks(torch_sees, monkeypatch):
    torch_sees("1")
    assert cuda_memory.METER.available("cuda:0") is None
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    assert "keeps no marks" in cuda_memory.METER.available("cuda:0").reason
