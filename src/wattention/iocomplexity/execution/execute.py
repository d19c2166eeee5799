"""Run a schedule on the memory machine, for its count alone or with numbers checked against float64.

``execute(..., numbers=False)`` counts; ``verify`` computes and compares. Both run one copy of the problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattention.core.errors import UnsupportedError
from wattention.iocomplexity.execution import oracle
from wattention.iocomplexity.execution.oracle import Arrays
from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.observer import Observer
from wattention.iocomplexity.memory.selection import Floats
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Schedule, Tiles

ROLES = {"L": "statistics", "maxima": "statistics", "P": "scratch", "E": "scratch"}


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What a run has cost, and what it has computed (empty in null mode)."""

    count: Count
    tiles: Tiles
    outputs: Arrays


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A run beside the prediction and the float64 reference."""

    execution: Execution
    predicted: Count
    errors: dict[str, float]
    """Largest error of each output, max |x - y| / max(1, max |y|): a gradient may be exactly zero."""

    @property
    def counts_agree(self) -> bool:
        """Whether machine and prediction agree in every field, and the peak stays within the prediction."""
        counted = self.execution.count
        return not counted.difference(self.predicted) and counted.peak <= self.predicted.peak

    @property
    def worst_error(self) -> float:
        """The largest of the errors."""
        return max(self.errors.values())


def execute(
    schedule: Schedule,
    problem: Problem,
    fast_words: int,
    *,
    tiles: Tiles | None = None,
    arrays: Arrays | None = None,
    numbers: bool = True,
    observer: Observer | None = None,
) -> Execution:
    """Run a schedule for one copy of a problem.

    Args:
        schedule: the algorithm.
        problem: the problem.
        fast_words: M.
        tiles: the schedule's own plan when None.
        arrays: Q, K, V (and dO) of one copy; drawn with seed 0 when None.
        numbers: False counts without computing.
        observer: sees every step, word by word.

    Raises:
        UnsupportedError: the schedule refuses the problem.
        FastMemoryTooSmallError: nothing fits.
    """
    reason = schedule.refuses(problem)
    if reason is not None:
        raise UnsupportedError(f"the schedule {schedule.name} cannot do this", got=reason, do="choose another schedule")
    tiles = schedule.plan(problem, fast_words) if tiles is None else tiles
    machine = Machine(fast_words, widths=problem.widths, numbers=numbers, observer=observer)
    before = set(_place_inputs(machine, schedule, problem, tiles, arrays))
    schedule.run(machine, problem, tiles)
    assert machine.used == 0, f"{schedule.name} leaves {machine.live()} in fast memory"
    outputs = {name: machine.result(name) for name in machine.names() - before} if numbers else {}
    return Execution(count=machine.count(), tiles=tiles, outputs=outputs)


def verify(
    schedule: Schedule, problem: Problem, fast_words: int, *, tiles: Tiles | None = None, seed: int = 0
) -> Verification:
    """Run with numbers; compare outputs with float64 and the count with the prediction."""
    arrays = _draw(schedule, problem, seed)
    execution = execute(schedule, problem, fast_words, tiles=tiles, arrays=arrays)
    wanted = oracle.outputs(schedule.form, schedule.direction, problem, arrays)
    if "l" in execution.outputs:
        execution.outputs["L"] = oracle.log_normaliser(execution.outputs["m"], execution.outputs["l"])
    errors = {name: _relative_error(execution.outputs[name], exact) for name, exact in wanted.items()}
    return Verification(execution=execution, predicted=schedule.predict(problem, execution.tiles), errors=errors)


def _relative_error(got: Floats, exact: Floats) -> float:
    finite = np.isfinite(exact)
    if not np.array_equal(np.where(finite, 0.0, exact), np.where(finite, 0.0, got)):
        return float("inf")
    size = np.abs(exact[finite]).max(initial=1.0)
    return float(np.abs(got[finite] - exact[finite]).max(initial=0.0) / size)


def _draw(schedule: Schedule, problem: Problem, seed: int) -> Arrays:
    draw = oracle.draw_input_side if schedule.form == "input-side" else oracle.draw_inputs
    return draw(problem, seed=seed)


def _place_inputs(
    machine: Machine, schedule: Schedule, problem: Problem, tiles: Tiles, arrays: Arrays | None
) -> list[str]:
    """Put what a schedule starts from into slow memory; return the names."""
    shapes = oracle.input_shapes(schedule.form, schedule.direction, problem)
    saved_keys = tiles.get("saved_keys", problem.key_tokens)
    shapes |= oracle.saved_shapes(schedule.facts.starts_from, problem, saved_keys)
    values: Arrays = {}
    if machine.numbers:
        values = dict(_draw(schedule, problem, 0) if arrays is None else arrays)
        if schedule.direction == "backward":
            attention = oracle.projected(values) if schedule.form == "input-side" else values
            values |= oracle.saved_by_forward(problem, attention, keys=saved_keys)
    for name, shape in shapes.items():
        machine.place(name, values.get(name, shape), role=ROLES.get(name, "inputs"))
    return list(shapes)
