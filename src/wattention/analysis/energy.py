"""Energy of training cells, phase by phase: gross, net of the idle machine, per product, with propagated intervals.

::

    gross   E                     what the counters say of a window
    net     E - P_idle x seconds  P_idle: mean of the idle windows before and after the work, in the same process

A constant error of a power sensor cancels in a net energy, a gain does not. The two idle windows rarely agree (the chip
is warmer after the work): half of their difference is part of the net energy's own uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattention.analysis.blocks import BlockModel, fit_blocks
from wattention.analysis.energy_interval import log_half_width
from wattention.core.quantities import Absent, Origin, Quantity, Reading
from wattention.core.records import CellRecord, Phase

GROSS, NET = "energy_per_token_j", "net_energy_per_token_j"
NO_TIME = Absent("the window gave none")
NO_IDLE = "no idle window: the machine is watched only where an energy counter can be read"


@dataclass(frozen=True, kw_only=True)
class PhaseOfEnergy:
    """Where a phase's energy is found, and per what it is told."""

    name: str
    title: str
    key: str
    per: str = ""
    unit: str = "J"


PHASES = (
    PhaseOfEnergy(name="build", title="build", key="energy_build"),
    PhaseOfEnergy(name="warmup", title="warm-up, compiling", key="energy_warmup"),
    PhaseOfEnergy(name="train", title="train", key="energy", per="tokens", unit="J/token"),
    PhaseOfEnergy(name="evaluate", title="evaluate", key="energy_evaluate", per="targets", unit="J/token"),
    PhaseOfEnergy(name="prefill", title="prefill", key="energy_prefill", per="prompts", unit="J/prompt"),
    PhaseOfEnergy(name="decode", title="decode", key="energy_decode", per="tokens", unit="J/token"),
)
TRAIN = next(phase for phase in PHASES if phase.name == "train")


@dataclass(frozen=True, kw_only=True)
class Joules:
    """Energy (or power) of one window, per product of its work.

    Args:
        window, shared, offset: relative 95 % half-widths: this window's own, the sensor's, and of the latter the part
            that is a constant power.
        low, high: range of an estimate.
    """

    value: float
    unit: str
    origin: Origin
    source: str
    window: float = 0.0
    shared: float = 0.0
    offset: float = 0.0
    low: float | None = None
    high: float | None = None

    def over(self, divisor: float, unit: str) -> Joules:
        """The same, divided by an exact number."""
        return Joules(
            value=self.value / divisor,
            unit=unit,
            origin=self.origin,
            source=self.source,
            window=self.window,
            shared=self.shared,
            offset=self.offset,
            low=None if self.low is None else self.low / divisor,
            high=None if self.high is None else self.high / divisor,
        )


@dataclass(frozen=True, kw_only=True)
class WindowEnergy:
    """One window's energy gross and net, its seconds, and what its work made."""

    gross: Joules | Absent
    net: Joules | Absent
    time_s: Reading
    made: float


@dataclass(frozen=True, kw_only=True)
class EnergyRatio:
    """One mechanism's energy, power or time over another's, with its propagated interval."""

    value: float
    low: float | None
    high: float | None
    tie: bool


Cells = Mapping[str, Mapping[int, Joules]]
Trained = Mapping[str, Mapping[int, CellRecord]]


def joules_of(readings: Mapping[str, Reading], prefix: str = "") -> Joules | Absent:
    """Return a window's energy with its uncertainty in parts.

    Readings without the parts (older records) have their range taken as the window's own.
    """
    energy = readings.get(f"{prefix}energy_j", Absent("this phase recorded no energy"))
    if isinstance(energy, Absent):
        return energy
    if energy.value <= 0:
        return Absent(f"not measurable: {energy.value:g} J is no energy; {energy.source}")
    if energy.origin == "estimated":
        return Joules(
            value=energy.value, unit="J", origin="estimated", source=energy.source, low=energy.low, high=energy.high
        )
    parts = [readings.get(f"{prefix}uncertainty_{part}_j") for part in ("window", "shared", "offset")]
    halves = [q.value / energy.value for q in parts if isinstance(q, Quantity)]
    if len(halves) != len(parts):
        known = energy.low is not None and energy.high is not None
        halves = [((energy.high or 0.0) - (energy.low or 0.0)) / 2 / energy.value if known else 0.0, 0.0, 0.0]
    return Joules(
        value=energy.value,
        unit="J",
        origin=energy.origin,
        source=energy.source,
        window=halves[0],
        shared=halves[1],
        offset=halves[2],
    )


def idle_power(record: CellRecord) -> Joules | Absent:
    """Return the watts of the idle machine in a cell's own process, the mean of before and after the work.

    ``window`` holds the steps of both idle windows and half of the difference between them.
    """
    found: list[Joules] = []
    why = NO_IDLE
    for name in ("idle_before", "idle_after"):
        readings = record.phases.get(name, Phase()).readings
        energy, seconds = joules_of(readings), readings.get("time_s")
        if isinstance(energy, Joules) and isinstance(seconds, Quantity) and seconds.value > 0:
            found.append(energy.over(seconds.value, "W"))
        elif readings and isinstance(energy, Absent):
            why = f"idle power: {energy.reason}"
    if not found:
        return Absent(why)
    mean = sum(one.value for one in found) / len(found)
    steps = math.hypot(*(one.window * one.value for one in found)) / len(found)
    drift = abs(found[0].value - found[-1].value) / 2
    return Joules(
        value=mean,
        unit="W",
        origin=found[0].origin,
        source=f"idle windows {'before and after' if len(found) == 2 else 'on one side of'} the work; "
        f"{found[0].source}",
        window=math.hypot(steps, drift) / mean,
        shared=max(one.shared for one in found),
        offset=max(one.offset for one in found),
    )


def window_energy(record: CellRecord, phase: PhaseOfEnergy) -> WindowEnergy | Absent:
    """Return the energy of one phase of one cell, of its whole window."""
    kept = record.phases.get(phase.key)
    readings = (kept or record.phases.get(phase.name, Phase())).readings
    if not readings:
        return Absent(f"the cell recorded no {phase.name} phase")
    seconds = readings.get("time_s", NO_TIME)
    made = readings.get(phase.per) if phase.per else None
    gross = joules_of(readings) if "energy_j" in readings else Absent(f"the {phase.key} phase recorded no energy_j")
    if phase.per and not isinstance(made, Quantity):
        gross = gross if isinstance(gross, Absent) else Absent(f"the phase did not count its {phase.per}")
    net = _net(gross, readings, idle_power(record), seconds)
    return WindowEnergy(gross=gross, net=net, time_s=seconds, made=made.value if isinstance(made, Quantity) else 1.0)


def _net(
    gross: Joules | Absent, readings: Mapping[str, Reading], idle: Joules | Absent, seconds: Reading, prefix: str = ""
) -> Joules | Absent:
    """Energy above the idle machine's in the same time; for an estimate, what its model says."""
    if isinstance(gross, Absent):
        return gross
    if gross.origin == "estimated":
        above = readings.get(f"{prefix}energy_above_idle_j", Absent("the record does not hold the idle share apart"))
        return joules_of({"energy_j": above})
    if isinstance(idle, Absent):
        return idle
    if isinstance(seconds, Absent):
        return Absent(f"no net energy without time: {seconds.reason}")
    idle_j = idle.value * seconds.value
    value = gross.value - idle_j
    own = math.hypot(gross.window * gross.value, idle.window * idle_j)
    if value <= own:
        return Absent(f"not measurable: {gross.value:.4g} J gross and {idle_j:.4g} J of idling cannot be told apart")
    return Joules(
        value=value,
        unit="J",
        origin="measured",
        source=f"gross less {idle.value:.4g} W x {seconds.value:.4g} s of the idle machine; {gross.source}",
        window=own / value,
        shared=gross.shared,  # a gain acts on both; a constant error of the power cancels
        offset=0.0,
    )


def energies(cells: Trained, phase: PhaseOfEnergy, *, net: bool = False) -> dict[str, dict[int, Joules | Absent]]:
    """Return by mechanism and block the energy of a phase per product of its work."""
    out: dict[str, dict[int, Joules | Absent]] = {}
    for label, blocks in cells.items():
        out[label] = {}
        for block, record in blocks.items():
            found = window_energy(record, phase)
            chosen = found if isinstance(found, Absent) else found.net if net else found.gross
            if isinstance(chosen, Joules) and isinstance(found, WindowEnergy):
                chosen = chosen.over(found.made, phase.unit)
            out[label][block] = chosen
    return out


def energy_by_length(cells: Trained, *, net: bool = False) -> dict[int, dict[str, dict[int, Joules | Absent]]]:
    """Return by length, mechanism and block the energy of one pass of a layer, from the cells that time lengths."""
    out: dict[int, dict[str, dict[int, Joules | Absent]]] = {}
    for label, blocks in cells.items():
        for block, record in blocks.items():
            idle = idle_power(record)
            for name, phase in record.phases.items():
                if name.isdigit() and "layer_energy_j" in phase.readings:
                    found = joules_of(phase.readings, "layer_")
                    if net:
                        found = _net(
                            found, phase.readings, idle, phase.readings.get("layer_energy_time_s", NO_TIME), "layer_"
                        )
                    out.setdefault(int(name), {}).setdefault(label, {})[block] = found
    return out


def numbers(found: Mapping[str, Mapping[int, Joules | Absent]]) -> dict[str, dict[int, Joules]]:
    """Keep what is a number; where a mechanism was measured in one block, its estimates in others are left out."""
    out: dict[str, dict[int, Joules]] = {}
    for label, blocks in found.items():
        kept = {block: j for block, j in blocks.items() if isinstance(j, Joules)}
        origins = {j.origin for j in kept.values()}
        out[label] = {block: j for block, j in kept.items() if len(origins) < 2 or j.origin == "measured"}
    return out


def summarise(found: Mapping[str, Mapping[int, Joules | Absent]]) -> dict[str, Reading]:
    """Return every mechanism's mean over its blocks with its propagated interval, or why there is none."""
    cells = numbers(found)
    model = _fit(cells)
    out: dict[str, Reading] = {}
    for label, blocks in found.items():
        if model is None or not cells[label]:
            out[label] = next((a for a in blocks.values() if isinstance(a, Absent)), Absent("no cell finished"))
        else:
            out[label] = _mean(model, label, list(cells[label].values()))
    return out


def _fit(cells: Cells) -> BlockModel | None:
    values = {label: {block: j.value for block, j in blocks.items()} for label, blocks in cells.items()}
    return fit_blocks(values) if any(values.values()) else None


def _mean(model: BlockModel, label: str, windows: Sequence[Joules]) -> Quantity:
    estimate, first = model.mean(label), windows[0]
    if first.origin == "estimated":
        # the range of a stand-in model is far wider than the noise between blocks, and says more
        lows, highs = [j.low for j in windows if j.low is not None], [j.high for j in windows if j.high is not None]
        low, high = (min(lows), max(highs)) if lows and highs else (None, None)
        return Quantity(
            value=estimate.value, unit=first.unit, origin="estimated", source=first.source, low=low, high=high
        )
    half = log_half_width(
        spread=_half(estimate.low, estimate.high),
        windows=[[j.window for j in windows]],
        shared=max(j.shared for j in windows),
    )
    return Quantity(
        value=estimate.value,
        unit=first.unit,
        origin=first.origin,
        source=first.source,
        low=None if half is None else estimate.value * math.exp(-half),
        high=None if half is None else estimate.value * math.exp(half),
    )


def ratios(found: Mapping[str, Mapping[int, Joules | Absent]], reference: str) -> dict[str, EnergyRatio]:
    """Return every other mechanism's ratio to the reference, paired within blocks of one host."""
    cells = numbers(found)
    model = _fit(cells)
    if model is None or reference not in model.labels:
        return {}
    theirs = list(cells[reference].values())
    out: dict[str, EnergyRatio] = {}
    for label, ratio in model.ratios_to(reference).items():
        ours = list(cells[label].values())
        half = log_half_width(
            spread=_half(ratio.low, ratio.high),
            windows=[[j.window for j in ours], [j.window for j in theirs]],
            shared=abs(_average([j.offset for j in ours]) - _average([j.offset for j in theirs])),
        )
        low = None if half is None else ratio.value * math.exp(-half)
        high = None if half is None else ratio.value * math.exp(half)
        undecided = low is None or high is None or low <= 1 <= high
        out[label] = EnergyRatio(value=ratio.value, low=low, high=high, tie=ratio.tie or undecided)
    return out


def frugal(found: Mapping[str, Mapping[int, Joules | Absent]]) -> list[str]:
    """The mechanism with the least energy and those that tie with it; none where all tie, or only one has a number."""
    means = {label: q.value for label, q in summarise(found).items() if isinstance(q, Quantity)}
    if len(means) < 2:
        return []
    leader = min(means, key=means.__getitem__)
    against = ratios(found, leader)
    tied = [label for label in means if label == leader or against[label].tie]
    return tied if len(tied) < len(means) else []


def _half(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else math.log(high / low) / 2


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
