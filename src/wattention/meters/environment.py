"""Provenance: all that has to be known about a run to repeat it or to distrust it.

Versions, commit, host, devices, governor, threads, allocator settings, seeds, command line and start time, as plain
JSON values. What cannot be read is ``{"absent": reason}``. Of the environment only the variables named here are kept:
a whole environment holds people's secrets.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import wattention
from wattention.core.quantities import Absent

PACKAGES = ("wattention", "torch", "numpy", "scipy", "numba", "psutil", "zeus", "nvidia-ml-py", "tokenizers", "triton")
VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES"),
    *("OMP_WAIT_POLICY", "KMP_AFFINITY", "KMP_BLOCKTIME", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT"),
    *("MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"),
    *("LD_PRELOAD", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG"),
    *("TORCH_CUDNN_SDPA_DEPRIORITIZED", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("NVIDIA_TF32_OVERRIDE", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "PYTHONHASHSEED"),
)
SYSTEM = Path("/sys/devices/system/cpu")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

Json = dict[str, Any]


def record_environment(
    *, device: str = "cpu", seeds: Mapping[str, int] | None = None, command: Sequence[str] | None = None
) -> Json:
    """Return the provenance of a run that starts now.

    Args:
        device: the device of the work.
        seeds: name -> seed of everything random in the run.
        command: the command line; ``sys.argv`` when None.
    """
    return {
        "started_utc": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "command": list(sys.argv if command is None else command),
        "seeds": dict(seeds or {}),
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "packages": {name: _version(name) for name in PACKAGES},
        "code": _commit(Path(wattention.__file__).resolve().parent),
        "host": record_host(),
        "torch": _torch(),
        "device": _device(device),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _absent(reason: str) -> Json:
    return Absent(reason).to_json()


def _version(name: str) -> str | Json:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        if name == "wattention":
            return _absent("not installed: runs from its source folder")
        return _absent("not installed")


def _commit(folder: Path) -> Json:
    """Return commit and dirty flag of the checkout that tracks this very code, or why there is none."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.strip()

    try:
        # A virtual environment may live inside somebody else's checkout, whose commit says nothing about this code.
        git("ls-files", "--error-unmatch", "__init__.py")
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "."))}
    except FileNotFoundError:
        return _absent("git is not installed")
    except subprocess.TimeoutExpired:
        return _absent("git did not answer in 20 s")
    except subprocess.CalledProcessError:
        return _absent("this code does not run from a git checkout: the package version identifies it")


def record_host() -> Json:
    """Return the identity of this host: name, system, processor, memory; what decides whether two hosts are alike."""
    psutil: Any = importlib.import_module("psutil")

    return {
        "hostname": socket.gethostname(),
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "virtual_machine": is_virtual_machine(),
        "cores_logical": psutil.cpu_count(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count(),
        "cpu_quota": _text(Path("/sys/fs/cgroup/cpu.max")),
        "memory_bytes": psutil.virtual_memory().total,
        "caches": _caches(),
        "governor": _text(SYSTEM / "cpu0/cpufreq/scaling_governor"),
        "transparent_huge_pages": _text(HUGE_PAGES),
    }


def _text(path: Path) -> str | Json:
    try:
        return path.read_text().strip()
    except OSError as error:
        return _absent(f"{path}: {error.strerror}")


def _cpuinfo(key: str) -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    found = re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else None


def _cpu_model() -> str | Json:
    return _cpuinfo("model name") or platform.processor() or _absent("the system does not name its processor")


def cpu_vendor() -> str:
    """The processor's vendor as it names itself, e.g. ``GenuineIntel``; empty where it does not say."""
    return _cpuinfo("vendor_id") or ""


def is_virtual_machine() -> bool | None:
    """Whether the processor says that a hypervisor runs it; None where it does not say."""
    flags = _cpuinfo("flags")
    return None if flags is None else "hypervisor" in flags.split()


def _caches() -> list[Json]:
    """Caches of core 0: level, kind, size as the kernel writes it, and the cores that share it."""
    return [
        {name: _text(index / name) for name in ("level", "type", "size", "shared_cpu_list", "coherency_line_size")}
        for index in sorted((SYSTEM / "cpu0/cache").glob("index[0-9]*"))
    ]


def _torch() -> Json:
    import torch

    backends: Any = torch.backends
    return {
        "version": str(torch.__version__),
        "commit": torch.version.git_version,
        "cuda": torch.version.cuda,
        "rocm": getattr(torch.version, "hip", None),
        "cudnn": backends.cudnn.version(),  # decides on newer boards which attention kernel torch takes
        "cpu_capability": backends.cpu.get_cpu_capability(),
        "mkl": backends.mkl.is_available(),
        "onednn": backends.mkldnn.is_available(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _device(device: str) -> Json:
    import torch

    if torch.device(device).type != "cuda":
        return {"name": device}
    if not torch.cuda.is_available():
        return {"name": device, **_absent("torch sees no CUDA device")}
    facts = torch.cuda.get_device_properties(device)
    return {
        "name": device,
        "model": facts.name,
        "memory_bytes": facts.total_memory,
        "capability": f"{facts.major}.{facts.minor}",
        "multiprocessors": facts.multi_processor_count,
        "count": torch.cuda.device_count(),
        "driver": _driver(),
    }


def _driver() -> str | Json:
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return _absent("the driver's version needs nvidia-ml-py: pip install 'wattention[energy]'")
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return _absent(f"NVML: {error}")
