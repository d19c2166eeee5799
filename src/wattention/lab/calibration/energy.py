"""Joules of this machine under loads of different intensity: idle, copies, products, and mixtures of the two.

::

    E = P_idle t + e_flop F + e_byte B

is fitted over the windows (least squares); the interval of each coefficient is its 95 % confidence interval under
Student's t. Where no energy counter can be read, the answer is the reason. A window lasts as long as the counter needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.meters.energy import needed_window_s
from wattention.meters.window import Panel

SIZE, WORDS = 768, 2**24
MIXES = ((0, 0), (1, 0), (0, 1), (2, 1), (4, 1), (1, 2))
"""(products, copies) repeated in turn; the first is idleness."""
NAMES = ("idle_power", "flop_energy", "byte_energy")
UNITS = {"idle_power": "W", "flop_energy": "J/flop", "byte_energy": "J/byte"}


@dataclass(frozen=True, kw_only=True)
class LoadWindow:
    """One window: what was done in it, and its joules."""

    seconds: float
    flop: float
    moved_bytes: float
    energy_j: float


def measure_energy(panel: Panel) -> dict[str, Reading]:
    """Return ``idle_power``, ``flop_energy`` and ``byte_energy`` of this machine, or why there are none."""
    counters = [one.instrument.facts for one in panel.meters.opened if one.meter.name == "energy"]
    if not counters:
        reason = "no energy counter can be read here (wattention doctor says why)"
        return dict.fromkeys(NAMES, Absent(reason))
    seconds = needed_window_s(counters[0]) * 1.1
    windows = []
    for products, copies in MIXES:
        found = _window(panel, products, copies, seconds)
        if isinstance(found, Absent):
            return dict.fromkeys(NAMES, found)
        windows.append(found)
    return fit_energy(windows)


def _window(panel: Panel, products: int, copies: int, seconds: float) -> LoadWindow | Absent:
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    source, target = torch.randn(WORDS), torch.empty(WORDS)
    work: Callable[[], object] = lambda: time.sleep(0.01) if not products + copies else None  # noqa: E731
    flop = moved = 0.0
    window = panel.window()
    with window:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            work()
            for _ in range(products):
                torch.mm(left, right)
            for _ in range(copies):
                target.copy_(source)
            flop += products * 2.0 * SIZE**3
            moved += copies * 2.0 * source.nbytes
    energy, elapsed = window.readings["energy_j"], window.readings["time_s"]
    if isinstance(energy, Absent):
        return energy
    assert isinstance(elapsed, Quantity)
    return LoadWindow(seconds=elapsed.value, flop=flop, moved_bytes=moved, energy_j=energy.value)


def fit_energy(windows: Sequence[LoadWindow]) -> dict[str, Reading]:
    """Fit the three coefficients; one that is not above 0 within its interval is absent and says so."""
    from scipy import special

    design = np.array([[w.seconds, w.flop, w.moved_bytes] for w in windows])
    joules = np.array([w.energy_j for w in windows])
    scale = design.max(axis=0)
    if len(windows) <= len(NAMES) or not scale.all() or np.linalg.matrix_rank(design / scale) < len(NAMES):
        return dict.fromkeys(NAMES, Absent(f"{len(windows)} loads do not tell three coefficients apart"))
    solution, *_ = np.linalg.lstsq(design / scale, joules, rcond=None)
    rest = joules - design / scale @ solution
    free = len(windows) - len(NAMES)
    covariance = np.linalg.inv((design / scale).T @ (design / scale)) * float(rest @ rest) / free
    half = special.stdtrit(free, 0.975) * np.sqrt(np.diag(covariance))
    out: dict[str, Reading] = {}
    for place, name in enumerate(NAMES):
        value, width = float(solution[place] / scale[place]), float(half[place] / scale[place])
        if value <= 0:
            out[name] = Absent(f"the fit over {len(windows)} loads gives {value:.3g} {UNITS[name]}, not above 0")
            continue
        out[name] = Quantity(
            value=value, unit=UNITS[name], origin="measured", low=max(0.0, value - width), high=value + width,
            source=f"least squares over {len(windows)} loads, 95 % interval",
        )  # fmt: skip
    return out
