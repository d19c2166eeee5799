"""The energy counters of this machine, by way of the zeus device layer, each as a domain with its own source.

zeus knows the vendors (NVML, ROCm, RAPL, Apple silicon, Jetson); this file asks it, says precisely why something is
missing and how to get it, and keeps what must not be added twice apart: ``psys`` is the whole platform and contains
the packages. zeus is the optional extra ``energy`` and is imported here only, when a meter opens. Without it NVIDIA's
counter is read directly (nvml_direct.py) and RAPL is missing. It is read directly, too, where CUDA_VISIBLE_DEVICES
names GPUs by UUID: zeus takes numbers only.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wattention.meters.base import MeterError, device_type, is_cuda
from wattention.meters.environment import cpu_vendor, is_virtual_machine

INSTALL = "pip install 'wattention[energy]'"
UDEV_RULE = 'ACTION=="add", SUBSYSTEM=="powercap", RUN+="/bin/chmod a+r /sys%p/energy_uj"'
UDEV_FILE = "/etc/udev/rules.d/70-rapl.rules"


class SensorClosedError(MeterError):
    """A sensor is there and this user may not read it.

    Args:
        path: the file, or what stands for it.
        commands: what to type, as root, to be allowed: until the next boot first, for good second.
    """

    def __init__(self, path: str, commands: tuple[str, ...], *, otherwise: str = "") -> None:
        self.path, self.commands = path, commands
        said = " or, for good, ".join(commands)
        super().__init__(f"{path} is readable by root only: {said}{otherwise}")


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One energy counter.

    Args:
        name: short and unique: ``gpu0``, ``package0``, ``dram0``.
        device: what it measures, as the vendor calls it.
        counter: the counter, as its documentation calls it.
        read_j: returns joules since some fixed instant.
        wrap_j: where the counter starts again at 0, or None.
        in_total: False for a domain that contains others of the list.
        sensor_class: its row in sensor_class.py.
    """

    name: str
    device: str
    counter: str
    read_j: Callable[[], float]
    wrap_j: float | None = None
    in_total: bool = True
    sensor_class: str = "unknown"


@dataclass(frozen=True, kw_only=True)
class Found:
    """The domains that can be read, and why the others cannot."""

    domains: tuple[Domain, ...]
    missing: dict[str, str]


def find_domains(device: str) -> Found:
    """Return the energy domains that work on ``device`` uses: its GPU, if it is one, and the host's CPU and memory."""
    domains: list[Domain] = []
    missing: dict[str, str] = {}
    searches: list[tuple[str, Callable[[], list[Domain]]]] = [("cpu", _rapl)]
    if is_cuda(device):
        searches.insert(0, ("gpu", lambda: [_gpu_domain(device)]))
    if sys.platform == "darwin" or Path("/etc/nv_tegra_release").exists() or device_type(device) == "mps":
        searches.append(("soc", _soc))
    for name, search in searches:
        try:
            domains.extend(search())
        except MeterError as error:
            missing[name] = str(error)
    return Found(domains=tuple(domains), missing=missing)


def load_zeus(module: str) -> Any:
    """Import one module of zeus; MeterError says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MeterError(f"zeus is not installed ({error}): {INSTALL}") from error


def _device_errors() -> tuple[type[BaseException], ...]:
    """What zeus and NVML raise, as far as they are installed."""
    found: list[type[BaseException]] = [ImportError, OSError, ValueError, RuntimeError, TimeoutError]
    for module, name in (("zeus.exception", "ZeusBaseError"), ("pynvml", "NVMLError")):
        try:
            found.append(getattr(importlib.import_module(module), name))
        except ImportError:
            continue
    return tuple(found)


def guarded(call: Callable[[], Any], what: str) -> Any:
    """Call into a device layer; any failure of it becomes a MeterError that says what was being done."""
    try:
        return call()
    except MeterError:
        raise
    except _device_errors() as error:
        if "NoPermission" in type(error).__name__ or "Insufficient Permissions" in str(error):
            raise SensorClosedError(
                f"the GPU's counter ({what}: {error})",
                ("ls -l /dev/nvidiactl shows the group to join: sudo usermod -aG GROUP $USER",),
            ) from error
        raise MeterError(f"{what}: {type(error).__name__}: {error}") from error


def list_gpus() -> tuple[list[Any], str]:
    """Return (the GPUs that can be measured, how they are read), through zeus or else through NVML."""
    try:
        layer = load_zeus("zeus.device.gpu")
    except MeterError as error:
        from wattention.meters.nvml_direct import ROUTE, list_nvml_gpus

        try:
            return list(list_nvml_gpus()), ROUTE
        except MeterError as direct:
            raise MeterError(f"{direct}; {error}") from error
    if os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("GPU-"):
        from wattention.meters.nvml_direct import list_nvml_gpus

        return list(list_nvml_gpus()), "NVML read directly, CUDA_VISIBLE_DEVICES holds UUIDs"
    return list(guarded(lambda: layer.get_gpus().gpus, "no GPU energy counter")), "through zeus"


def find_gpu(device: str) -> tuple[int, Any, str]:
    """Return (position in the list, the GPU, how it was matched and is read) for one of torch's devices.

    torch and NVML may count GPUs in different orders, so the two are matched by UUID where both tell it; an instance of
    a partitioned GPU (MIG) has a UUID of its own.

    Errors: MeterError where no GPU matches, or where the one that does is shared out in instances.
    """
    gpus, route = list_gpus()
    import torch

    index = torch.device(device).index or 0
    uuid = str(getattr(torch.cuda.get_device_properties(index), "uuid", "")) if torch.cuda.is_available() else ""
    listed = [nvml_uuid(gpu) for gpu in gpus]
    for position, gpu in enumerate(gpus):
        if uuid and uuid in listed[position]:
            if is_partitioned(gpu):
                raise MeterError(f"{device} is one instance (MIG) of a GPU; its counters are those of all instances")
            return position, gpu, f"matched by UUID, {route}"
    if uuid and listed and all(listed):
        raise MeterError(
            f"torch's {device} ({uuid}) is none of the {len(gpus)} GPUs that can be measured: an instance of a "
            "partitioned GPU (MIG) has no counters of its own"
        )
    if index >= len(gpus):
        raise MeterError(f"torch's {device} is not among the {len(gpus)} GPUs that can be measured")
    return index, gpus[index], f"matched by index: UUIDs cannot be read; {route}"


def nvml_uuid(gpu: Any) -> str:
    """Return the UUID of one of NVIDIA's GPUs, or an empty string."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
        return str(pynvml.nvmlDeviceGetUUID(gpu.handle))
    except (ImportError, AttributeError):
        return ""
    except pynvml.NVMLError:
        return ""


def is_partitioned(gpu: Any) -> bool:
    """Whether one of NVIDIA's GPUs is in MIG mode; False where the driver knows no such mode."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
        current, _ = pynvml.nvmlDeviceGetMigMode(gpu.handle)
    except (ImportError, AttributeError):
        return False
    except pynvml.NVMLError:
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _gpu_domain(device: str) -> Domain:
    position, gpu, matched = find_gpu(device)
    name = guarded(gpu.get_name, "the GPU does not answer")
    if not guarded(gpu.supports_get_total_energy_consumption, f"{name} does not answer"):
        raise MeterError(
            f"{name} has no total energy counter that can be trusted (NVIDIA: Volta or newer; AMD: ROCm 6.2 or newer)"
        )
    amd = is_amd(gpu)
    return Domain(
        name=f"gpu{position}",
        device=f"{name} ({matched})",
        counter="ROCm energy accumulator" if amd else "NVML total energy consumption",
        read_j=lambda: float(guarded(gpu.get_total_energy_consumption, f"{name} lost")) / 1e3,
        sensor_class="rocm" if amd else "nvml",
    )


def is_amd(gpu: Any) -> bool:
    """Whether one of zeus's GPUs is AMD's."""
    return "amd" in type(gpu).__module__


def _rapl() -> list[Domain]:
    cpu_layer = load_zeus("zeus.device.cpu")
    rapl = load_zeus("zeus.device.cpu.rapl")
    if not rapl.rapl_is_available():
        raise MeterError(_why_no_rapl(rapl.RAPL_DIR))
    folder = rapl.RAPL_DIR if Path(rapl.RAPL_DIR).exists() else rapl.CONTAINER_RAPL_DIR
    closed = _unreadable(folder)
    if closed and not any(os.environ.get(name) for name in ("ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT")):
        raise _closed(closed)
    domains: list[Domain] = []
    for cpu in guarded(lambda: cpu_layer.get_cpus().cpus, "RAPL counters cannot be opened"):
        domains.extend(_rapl_domains(cpu))
    return domains


def _rapl_domains(cpu: Any) -> list[Domain]:
    zone = getattr(cpu, "rapl_file", None)  # the daemon's client has no files
    zone_name = getattr(zone, "name", f"package-{cpu.cpu_index}")
    whole_platform = zone_name == "psys"
    name = "psys" if whole_platform else f"package{cpu.cpu_index}"
    dram = getattr(cpu, "dram", None)

    def read(part: str) -> float:
        sample = guarded(cpu.get_total_energy_consumption, f"RAPL {zone_name} lost")
        return float(getattr(sample, part)) / 1e3

    domains = [
        Domain(
            name=name,
            device="whole platform (contains the packages)" if whole_platform else f"CPU {zone_name}",
            counter=f"RAPL {zone_name}",
            read_j=lambda: read("cpu_mj"),
            wrap_j=zone.max_energy_range_uj / 1e6 if zone is not None else None,
            in_total=not whole_platform,
            sensor_class="rapl_amd" if "amd" in cpu_vendor().lower() else "rapl_intel",
        )
    ]
    if guarded(cpu.supports_get_dram_energy_consumption, f"RAPL {zone_name}"):
        domains.append(
            Domain(
                name=f"dram{cpu.cpu_index}",
                device=f"memory at {zone_name}",
                counter="RAPL dram",
                read_j=lambda: read("dram_mj"),
                wrap_j=dram.max_energy_range_uj / 1e6 if dram is not None else None,
                in_total=not whole_platform,
                sensor_class="rapl_dram",
            )
        )
    return domains


def _why_no_rapl(folder: str) -> str:
    if sys.platform != "linux":
        return f"RAPL counters are read through {folder}, which exists on Linux only"
    if is_virtual_machine():
        return f"no {folder}: this is a virtual machine and its hypervisor hides RAPL; measure on the host itself"
    return (
        f"no {folder}: load the driver (sudo modprobe intel_rapl_msr), or, in a container, mount the host's "
        "/sys/class/powercap at /zeus_sys/class/powercap; processors without RAPL (most ARM ones) have nothing to read"
    )


def _unreadable(folder: str) -> list[Path]:
    """Return the counters that zeus will open and this user may not read."""
    zones = Path(folder).glob("intel-rapl:*")
    files = [path for zone in zones for path in (zone / "energy_uj", *zone.glob("intel-rapl:*/energy_uj"))]
    return [path for path in sorted(files) if path.exists() and not os.access(path, os.R_OK)]


def _closed(files: list[Path]) -> SensorClosedError:
    others = f" (and {len(files) - 1} more)" if len(files) > 1 else ""
    names = " ".join(str(path) for path in files)
    return SensorClosedError(
        f"{files[0]}{others}",
        (
            f"sudo chmod a+r {names} (until the next boot)",
            f"echo '{UDEV_RULE}' | sudo tee {UDEV_FILE} && sudo udevadm control --reload && "
            "sudo udevadm trigger --action=add --subsystem-match=powercap",
        ),
        otherwise="; or run the daemon zeusd as root and set ZEUSD_SOCK_PATH to its socket",
    )


def _soc() -> list[Domain]:
    soc = guarded(lambda: load_zeus("zeus.device.soc").get_soc(), "no system-on-chip energy counter")
    first = guarded(soc.get_total_energy_consumption, "the system on chip does not answer")
    names = [f.name for f in fields(first) if isinstance(getattr(first, f.name), int | float)]
    # Jetson's total rail contains the others; Apple has none, and its parts are told apart.
    whole = "total_energy_mj"
    parts_counted = whole not in names

    def reader(field: str) -> Callable[[], float]:
        return lambda: float(getattr(guarded(soc.get_total_energy_consumption, "system on chip lost"), field)) / 1e3

    counted = {"cpu_total_mj", "dram_mj", "gpu_mj", "gpu_sram_mj", "ane_mj"}
    return [
        Domain(
            name=f"soc_{name.removesuffix('_mj').removesuffix('_energy')}",
            device=f"{type(soc).__name__} {name.removesuffix('_mj')}",
            counter=f"{type(soc).__name__} energy of {name.removesuffix('_mj')}",
            read_j=reader(name),
            in_total=name == whole or (parts_counted and name in counted),
            sensor_class="soc",
        )
        for name in names
    ]
