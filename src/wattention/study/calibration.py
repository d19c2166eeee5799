"""Calibrate this machine: time it in a process of its own, under the settings of a cell, and write its profile.

The process has the same allocator, thread count and spin count as every measured cell (``study/local.py``): timings
under other settings would be of another machine.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.study.local import MALLOC_SETTINGS, SPIN_COUNT

if TYPE_CHECKING:
    from wattention.lab.calibration.levels import CacheLevel
    from wattention.lab.calibration.operators import OperatorTiming
LEAST_SECONDS = 10.0
OPERATORS_SHARE = 0.7
"""Of the time; the rest is for the start of the process, the launches, the memory levels and the power."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured of this machine, not yet a profile."""

    timings: tuple[OperatorTiming, ...]
    left_out: int
    launch_s: float
    launches: int
    launch_inference_s: float
    launches_inference: int
    levels: tuple[CacheLevel, ...]
    energy: Mapping[str, Reading]
    """``idle_power``, ``flop_energy`` and ``byte_energy``."""
    others_share: Reading
    environment: Mapping[str, Any]
    took_s: float


def run_calibration(
    *, seconds: float, threads: int, malloc: str = "keep", on_progress: Callable[[Any], None] = lambda event: None
) -> Calibration:
    """Measure this machine in a fresh process within about so many seconds.

    Raises:
        UserError: a budget under ten seconds, or a process that died.
    """
    if seconds < LEAST_SECONDS:
        raise UserError(
            "too little time to calibrate", got=f"{seconds:g} s", wanted=f"at least {LEAST_SECONDS:g} s",
            do="give --seconds 120",
        )  # fmt: skip
    settings = {**MALLOC_SETTINGS[malloc], "GOMP_SPINCOUNT": str(SPIN_COUNT)}
    settings |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    os.environ.update(settings)  # the child reads them when it loads its libraries
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_in_child, args=(theirs, seconds, threads), daemon=True)
    process.start()
    theirs.close()
    try:
        found = _receive(ours, on_progress)
    finally:
        ours.close()
        process.kill()
        process.join()
    if isinstance(found, Calibration):
        return found
    raise UserError("the calibration did not end", got=found, wanted="a measurement", do="see the message above it")


def _receive(pipe: Connection, on_progress: Callable[[Any], None]) -> Any:
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return "a process that died"
        if isinstance(message, (Calibration, str)):
            return message
        on_progress(message)


def _in_child(pipe: Connection, seconds: float, threads: int) -> None:
    try:
        pipe.send(measure_machine(seconds=seconds, threads=threads, on_progress=pipe.send))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def measure_machine(*, seconds: float, threads: int, on_progress: Callable[[float], None]) -> Calibration:
    """Measure the machine this process runs on; see :func:`run_calibration`, which gives it the right settings."""
    import time

    import torch

    from wattention.lab.calibration.energy import measure_energy
    from wattention.lab.calibration.launches import time_launch, time_launch_of_inference
    from wattention.lab.calibration.levels import measure_levels
    from wattention.lab.calibration.operators import time_operators
    from wattention.lab.calibration.probes import all_probes
    from wattention.meters.environment import record_environment
    from wattention.meters.window import Panel

    start = time.monotonic()
    torch.set_num_threads(threads)
    environment = record_environment(command=["wattention", "calibrate"])
    with Panel.open("cpu") as panel:
        energy = measure_energy(panel)
        window = panel.window()
        with window:
            launch_s, launches = time_launch()
            launch_inference_s, launches_inference = time_launch_of_inference()
            levels = measure_levels(environment["host"]["caches"], environment["host"]["memory_bytes"], threads=threads)
            left = seconds - (time.monotonic() - start)
            timings = time_operators(budget_s=max(OPERATORS_SHARE * seconds, left), on_progress=on_progress)
    return Calibration(
        timings=tuple(timings),
        left_out=len(list(all_probes())) - len(timings),
        launch_s=launch_s,
        launches=launches,
        launch_inference_s=launch_inference_s,
        launches_inference=launches_inference,
        levels=tuple(levels),
        energy=energy,
        others_share=window.readings["other_cpu_share"],
        environment=environment,
        took_s=time.monotonic() - start,
    )


# --- the profile ------------------------------------------------------------------------------------------------------


def profile_toml(found: Calibration, *, now: datetime | None = None) -> str:
    """Write a calibration as a hardware profile."""
    host = found.environment["host"]
    date = (now or datetime.now(UTC)).strftime("%Y-%m-%d")
    name = host.get("name") or host.get("hostname") or "this machine"
    source = f"measured by wattention calibrate on {name}, {date}"
    processor = host.get("processor") or host.get("cpu") or "CPU"
    lines = ["schema_version = 1", f"title = {_text(f'{processor}, calibrated {date}')}", 'kind = "cpu"',
             f"vendor = {_text(str(host.get('vendor') or 'unknown'))}"]  # fmt: skip
    for name, seconds, launches in (
        ("launch_overhead", found.launch_s, found.launches),
        ("launch_overhead_inference", found.launch_inference_s, found.launches_inference),
    ):
        lines.append(f"{name} = {_number(seconds, 's', f'{source}, over {launches} operators')}")
    idle = found.energy["idle_power"]
    if isinstance(idle, Quantity):
        lines.append(f"idle_power = {_number(idle.value, 'W', source, idle)}")
    lines += ["", "[conditions]", *(f"{key} = {_text(value)}" for key, value in _conditions(found).items())]
    lines += ["", "[peak]"]
    for dtype in sorted({one.dtype for one in found.timings if one.flop}):
        rate = max(one.flop / one.seconds for one in found.timings if one.dtype == dtype and one.flop)
        lines.append(f"{dtype} = {_number(rate, 'flop/s', f'{source}, the fastest product timed')}")
    flop = found.energy["flop_energy"]
    if isinstance(flop, Quantity):
        lines += ["", "[flop_energy]", f"float32 = {_number(flop.value, 'J/flop', source, flop)}"]
    for level in found.levels:
        lines += _level(level, source, found.energy["byte_energy"] if level.name == "main" else None)
    lines += _timings(found, source)
    return "\n".join(lines) + "\n"


def _conditions(found: Calibration) -> dict[str, str]:
    torch = found.environment.get("torch", {})
    variables = found.environment.get("variables", {})
    out = {
        "host": str(found.environment.get("host", {}).get("hostname", "")),
        "torch": str(found.environment.get("packages", {}).get("torch", "")),
        "threads": str(torch.get("threads", variables.get("OMP_NUM_THREADS", ""))),
        "allocator": ", ".join(f"{key}={value}" for key, value in variables.items() if "MALLOC" in key) or "default",
        "took": f"{found.took_s:.0f} s",
        "left_out": f"{found.left_out} timings for want of time",
    }
    if isinstance(found.others_share, Quantity):
        out["others"] = f"{100 * found.others_share.value:.1f} % of the machine was used by other processes"
    absent = {name: reading.reason for name, reading in found.energy.items() if isinstance(reading, Absent)}
    if absent:
        out["energy"] = "; ".join(dict.fromkeys(absent.values()))
    return out


def _level(level: CacheLevel, source: str, energy: Reading | None) -> list[str]:
    lines = ["", "[[levels]]", f"name = {_text(level.name)}", f"holder = {_text(level.holder)}",
             f"capacity = {_number(level.capacity_bytes, 'byte', f'{source}: reported by the system')}",
             f"count = {_number(level.count, 'count', f'{source}: reported by the system')}",
             f"bandwidth = {_number(level.bandwidth_bytes_s, 'byte/s', f'{source}, copies in half')}"]  # fmt: skip
    if isinstance(energy, Quantity):
        lines.append(f"energy = {_number(energy.value, 'J/byte', source, energy)}")
    return lines


def _timings(found: Calibration, source: str) -> list[str]:
    groups: dict[tuple[str, str, str], list[OperatorTiming]] = {}
    for one in found.timings:
        groups.setdefault((one.operator, one.dtype, one.operands), []).append(one)
    lines: list[str] = []
    for (operator, dtype, operands), ones in sorted(groups.items()):
        points = ", ".join(_point(one) for one in sorted(ones, key=lambda one: one.sizes))
        lines += ["", "[[timings]]", f"operator = {_text(operator)}", f"dtype = {_text(dtype)}",
                  f"operands = {_text(operands)}", f"axes = [{', '.join(map(_text, ones[0].axes))}]",
                  f"points = [{points}]", f"source = {_text(source)}"]  # fmt: skip
    return lines


def _point(one: OperatorTiming) -> str:
    sizes = [f"{size:g}" if size < 1e6 else f"{size:.0f}" for size in one.sizes]
    return f"[{', '.join([*sizes, f'{one.seconds:.4g}'])}]"


def _number(value: float, unit: str, source: str, interval: Quantity | None = None) -> str:
    ends = ""
    if interval is not None and interval.low is not None and interval.high is not None:
        ends = f", low = {max(0.0, interval.low):.4g}, high = {interval.high:.4g}"
    shown = f"{value:.0f}" if unit in ("byte", "count") else f"{value:.4g}"
    return f'{{ value = {shown}{ends}, unit = "{unit}", source = {_text(source)} }}'


def _text(value: str) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
