"""Joules per trained token: from the training window where a counter can resolve it, else from a window made for it.

An energy counter moves in steps, so a window shorter than the meter's least is not measurable; training steps are then
repeated in a window of their own until it is long enough. Where no counter can be read at all, a CPU gets an estimate,
marked as such with its range (meters/estimate.py); a GPU gets the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch

from wattention.core.quantities import Absent, Quantity, Reading, counted
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.meters.energy import needed_window_s
from wattention.meters.estimate import choose_cpu_power, estimate_cpu_energy
from wattention.meters.window import Panel

MARGIN = 1.1


def measure_training_energy(
    cell: CellSpec, panel: Panel, train: Phase, step: Callable[[], object], tokens_per_step: int
) -> Phase:
    """Return the phase ``energy`` with ``energy_j``, ``tokens`` and ``time_s``.

    Args:
        train: the training phase, already measured.
        step: takes one more training step.
        tokens_per_step: tokens of one step.
    """
    energy = train.readings["energy_j"]
    counters = [one.instrument.facts for one in panel.meters.opened if one.meter.name == "energy"]
    if isinstance(energy, Quantity):
        return _phase(energy, train.readings, train.flags)
    if counters:
        return _repeat(panel, step, tokens_per_step, needed_window_s(counters[0]) * MARGIN)
    if torch.device(cell.run.device).type == "cpu":
        power = choose_cpu_power(watts_per_core=cell.run.measure.cpu_watts_per_core)
        estimate = estimate_cpu_energy(train.readings["time_s"], train.readings["cpu_s"], power=power)
        phase = _phase(estimate.energy_j, train.readings, ())
        return Phase(readings={**phase.readings, "energy_counter_j": energy})
    return _phase(energy, train.readings, ())


def _repeat(panel: Panel, step: Callable[[], object], tokens_per_step: int, seconds: float) -> Phase:
    """Repeat training steps until the window is long enough for the counters."""
    steps = 0
    window = panel.window()
    with window:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            step()
            steps += 1
    flags = tuple(flag.to_json() for flag in window.flags)
    tokens = counted(steps * tokens_per_step, "token", f"{steps} training steps repeated for the energy counter")
    return _phase(window.readings["energy_j"], {**window.readings, "tokens": tokens}, flags)


def _phase(energy: Reading, readings: Mapping[str, Reading], flags: tuple[Mapping[str, str], ...]) -> Phase:
    missing = Absent("the window gave none")
    kept = {name: readings.get(name, missing) for name in ("time_s", "tokens")}
    return Phase(readings={"energy_j": energy, **kept}, flags=flags)
