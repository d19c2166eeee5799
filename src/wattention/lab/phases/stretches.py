"""Training in stretches, each in a measuring window of its own, and their sum as one phase.

What happens between two stretches, evaluation above all, is in no window of training. Sums are exact for the clock and
the counters of CPU time; joules add up only where every stretch was long enough to be measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from wattention.core.quantities import Absent, Quantity, Reading, counted
from wattention.core.records import Phase
from wattention.lab.phases.energy import EnergyWindows
from wattention.lab.phases.stage import Stage
from wattention.lab.training import DivergedError, Trainer
from wattention.meters.window import MeasuringWindow, Panel

T = TypeVar("T")

SUMMED = ("time_s", "cpu_s", "cpu_user_s", "cpu_system_s", "energy_j")


@dataclass(kw_only=True)
class Stretches:
    """Stretches of training steps and evaluations between them, as they are measured.

    Args:
        losses: training loss of every step in nats per target.
        trained, evaluated: the closed windows.
        tokens_per_step: tokens of one optimiser step.
    """

    panel: Panel
    tokens_per_step: int
    losses: list[float] = field(default_factory=list)
    trained: list[MeasuringWindow] = field(default_factory=list)
    evaluated: list[MeasuringWindow] = field(default_factory=list)

    def train(self, trainer: Trainer, steps: int) -> None:
        """Take steps inside one window, and look at their losses after it.

        Errors: ``DivergedError`` when a loss is not finite.
        """
        window = self.panel.window()
        first = trainer.next_step
        with window:
            losses = [trainer.step().loss for _ in range(steps)]
        self.trained.append(window)
        nats = torch.stack(losses).float().tolist()
        self.losses += nats
        for step, loss in enumerate(nats, start=first):
            if not math.isfinite(loss):
                raise DivergedError(step, loss)

    def evaluate(self, work: Callable[[], T]) -> T:
        """Evaluate inside a window of its own."""
        window = self.panel.window()
        with window:
            result = work()
        self.evaluated.append(window)
        return result

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return len(self.losses) * self.tokens_per_step

    @property
    def time_s(self) -> float:
        """Seconds of training so far; what the clock could not tell is not in it."""
        readings = [window.readings["time_s"] for window in self.trained]
        return sum(reading.value for reading in readings if isinstance(reading, Quantity))

    def training_phase(self) -> Phase:
        """Return all training as one phase; losses that are not finite, which JSON cannot hold, are left out."""
        counts: dict[str, Reading] = {
            "steps": counted(len(self.losses), "1", "steps taken"),
            "tokens": counted(self.tokens, "token", "steps taken x tokens of a step"),
        }
        return _sum(self.trained, counts, {"loss_nats": tuple(filter(math.isfinite, self.losses))})

    def evaluation_phase(self) -> Phase:
        """Return all evaluations as one phase."""
        return _sum(self.evaluated, {"evaluations": counted(len(self.evaluated), "1", "evaluations made")}, {})

    def conclude(self, stage: Stage, step: Callable[[], object]) -> None:
        """Leave the phases ``train``, ``evaluate`` and ``energy``, by the rules of every training cell.

        May take further steps where the energy of the stretches alone could not be resolved.
        """
        stage.phases |= {"train": self.training_phase(), "evaluate": self.evaluation_phase()}
        stage.progress(phase="energy")
        EnergyWindows(stage=stage).of_training(step, self.tokens_per_step)


def _sum(
    windows: Sequence[MeasuringWindow], counts: dict[str, Reading], samples: dict[str, tuple[float, ...]]
) -> Phase:
    readings = {name: _total([window.readings[name] for window in windows]) for name in SUMMED if _known(name, windows)}
    flags = tuple(flag.to_json() for window in windows for flag in window.flags)
    return Phase(readings={**readings, **counts}, samples=samples, flags=flags)


def _known(name: str, windows: Sequence[MeasuringWindow]) -> bool:
    return bool(windows) and all(name in window.readings for window in windows)


def _total(readings: Sequence[Reading]) -> Reading:
    """Return the sum of readings of windows in a row; one that is absent makes the sum absent, with its reason."""
    numbers = [reading for reading in readings if isinstance(reading, Quantity)]
    for reading in readings:
        if isinstance(reading, Absent):
            return Absent(f"in {len(readings) - len(numbers)} of {len(readings)} windows: {reading.reason}")
    first = numbers[0]
    return Quantity(
        value=sum(q.value for q in numbers),
        unit=first.unit,
        origin=first.origin,
        source=f"sum of {len(numbers)} windows; {first.source}",
        low=_bound([q.low for q in numbers]),
        high=_bound([q.high for q in numbers]),
    )


def _bound(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
