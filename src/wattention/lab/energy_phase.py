"""Joules per trained token: from the training window where a counter can resolve it, else from a window made for it.

An energy counter moves in steps, so a window shorter than the meter's least is not measurable; training steps are then
repeated in a window of their own until it is long enough. Where no counter can be read at all, a CPU gets an estimate,
marked as such with its range (meters/estimate.py); a GPU gets the reason.

Over several ranks ``train`` is already one phase of all of them; a step is then taken by all ranks or by none, so the
number of repeated steps is fixed beforehand, from the time of the training steps, instead of watching each clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import torch

from wattention.core.quantities import Absent, Quantity, Reading, counted
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.lab.parallel import ALONE, OneProcess
from wattention.meters.energy import needed_window_s
from wattention.meters.estimate import choose_cpu_power, estimate_cpu_energy
from wattention.meters.window import Panel

MARGIN = 1.1
RANKS_MARGIN = 1.5
"""Room for steps that run faster in the repeated window than they did in training; its length is fixed beforehand."""


def measure_training_energy(
    cell: CellSpec,
    panel: Panel,
    train: Phase,
    step: Callable[[], object],
    tokens_per_step: int,
    spread: OneProcess = ALONE,
) -> Phase:
    """Return the phase ``energy`` with ``energy_j``, ``tokens`` and ``time_s``; the same on every rank.

    Args:
        train: the training phase, already measured.
        step: takes one more training step.
        tokens_per_step: tokens of one step, of all ranks together.
        spread: the ranks that take the step together.
    """
    energy = train.readings["energy_j"]
    if isinstance(energy, Quantity):
        return _phase(energy, train.readings, train.flags)
    counters = [one.instrument.facts for one in panel.meters.opened if one.meter.name == "energy"]
    needed_s = max(spread.gather(needed_window_s(counters[0]) if counters else 0.0))
    if needed_s and spread.size > 1:
        return _repeat_together(panel, step, tokens_per_step, _steps_in(train, needed_s * RANKS_MARGIN), spread)
    if needed_s:
        return _repeat(panel, step, tokens_per_step, needed_s * MARGIN)
    if torch.device(cell.run.device).type == "cpu":
        power = choose_cpu_power(watts_per_core=cell.run.measure.cpu_watts_per_core)
        estimate = estimate_cpu_energy(
            train.readings["time_s"], train.readings["cpu_s"], power=power, cores=spread.cores
        )
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


def _steps_in(train: Phase, seconds: float) -> int:
    """Return how many steps last that long, by the training steps; the same on every rank."""
    time_s, steps = train.readings["time_s"], train.readings["steps"]
    assert isinstance(time_s, Quantity)
    assert isinstance(steps, Quantity)
    return math.ceil(seconds * steps.value / time_s.value)


def _repeat_together(
    panel: Panel, step: Callable[[], object], tokens_per_step: int, steps: int, spread: OneProcess
) -> Phase:
    """Repeat a fixed number of training steps on all ranks, in one window."""
    window = panel.window()
    spread.barrier()
    with window:
        for _ in range(steps):
            step()
    merged = spread.merge(Phase(readings=window.readings, flags=tuple(flag.to_json() for flag in window.flags)))
    tokens = counted(steps * tokens_per_step, "token", f"{steps} training steps repeated for the energy counters")
    return _phase(merged.readings["energy_j"], {**merged.readings, "tokens": tokens}, merged.flags)


def _phase(energy: Reading, readings: Mapping[str, Reading], flags: tuple[Mapping[str, str], ...]) -> Phase:
    missing = Absent("the window gave none")
    kept = {name: readings.get(name, missing) for name in ("time_s", "tokens")}
    parts = {name: r for name, r in readings.items() if name.startswith("energy_") and name != "energy_j"}
    return Phase(readings={"energy_j": energy, **kept, **parts}, flags=flags)
