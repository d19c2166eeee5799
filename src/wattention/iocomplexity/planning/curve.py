"""Words moved against fast memory, over decades of M: schedules, bounds by class, crossings, and where devices lie.

The curve is data; a renderer of the report draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattention.core.errors import UserError
from wattention.hardware.catalog import load_profile
from wattention.iocomplexity.bounds.base import AlgorithmClass, Direction
from wattention.iocomplexity.planning.crossovers import Crossover, steady_winners, winner_changes
from wattention.iocomplexity.planning.planner import Plan, plan
from wattention.iocomplexity.problem.attention import Problem

DRAWN_CLASSES = (AlgorithmClass.ANY, AlgorithmClass.RECOMPUTE, AlgorithmClass.ONCE)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: None where a schedule does not fit or a bound is 0."""

    name: str
    words: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class DeviceMark:
    """A level of a device on the axis of M."""

    device: str
    level: str
    fast_words: int

    @property
    def label(self) -> str:
        """What the figure prints beside the mark."""
        return f"{self.device} {self.level}"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Words against M for one pass of one problem."""

    problem: Problem
    direction: Direction
    word_bytes: int
    fast_words: tuple[int, ...]
    schedules: tuple[Line, ...]
    best: Line
    winners: tuple[str, ...]
    """Name of the best schedule at each M, kept while no other is clearly better."""
    bounds: tuple[Line, ...]
    crossings: tuple[Crossover, ...]
    marks: tuple[DeviceMark, ...]


def default_range(problem: Problem) -> tuple[int, int]:
    """Four decades around the square of the head dimension, one below and three above."""
    square = problem.key_dim * problem.value_dim
    return max(64, square // 32), max(64, square // 32) * 10_000


def trace_curve(
    problem: Problem,
    *,
    direction: Direction,
    low: int | None = None,
    high: int | None = None,
    points: int = 81,
    devices: Iterable[str] = (),
    word_bytes: int = 2,
) -> Curve:
    """Plan at ``points`` values of M, evenly spaced on a logarithmic scale.

    Args:
        problem: the problem.
        direction: forward or backward pass.
        low: the smallest M; near d^2 / 32 when None. Values at which no schedule fits are left out.
        high: the largest M; four decades above when None.
        points: how many values of M.
        devices: hardware profiles whose fast levels are marked.
        word_bytes: bytes of one word, for the marks.

    Raises:
        UserError: an empty range, fewer than two points, an unknown device, or no M at which a schedule fits.
    """
    start, stop = default_range(problem)
    low, high = low or start, high or stop
    if not 0 < low < high or points < 2:
        raise UserError(
            "range of the curve",
            got=f"{points} points from {low} to {high} words",
            wanted="at least 2 points over a rising range",
        )
    marks = _marks(devices, word_bytes)
    step = math.log(high / low) / (points - 1)
    plans = _plans(problem, direction, sorted({round(low * math.exp(i * step)) for i in range(points)}))
    names = sorted({planned.name for one in plans for planned in one.ranked})
    return Curve(
        problem=problem,
        direction=direction,
        word_bytes=word_bytes,
        fast_words=tuple(one.fast_words for one in plans),
        schedules=tuple(Line(name=name, words=tuple(_words_of(one, name) for one in plans)) for name in names),
        best=Line(name="best", words=tuple(float(one.best.words) for one in plans)),
        winners=tuple(steady_winners(plans)),
        bounds=tuple(
            Line(name=c.label, words=tuple(one.bound(c).words or None for one in plans)) for c in DRAWN_CLASSES
        ),
        crossings=tuple(winner_changes(problem, plans)),
        marks=tuple(mark for mark in marks if plans[0].fast_words <= mark.fast_words <= plans[-1].fast_words),
    )


def _marks(devices: Iterable[str], word_bytes: int) -> list[DeviceMark]:
    """Levels of devices by size; levels of one name and size share a mark."""
    owners: dict[tuple[int, str], list[str]] = {}
    for name in devices:
        for level in load_profile(name).fast_levels:
            owners.setdefault((level.words(word_bytes), level.name), []).append(name)
    return [
        DeviceMark(device=", ".join(names), level=level, fast_words=words)
        for (words, level), names in sorted(owners.items())
    ]


def _plans(problem: Problem, direction: Direction, sizes: list[int]) -> list[Plan]:
    plans, refusal = [], None
    for fast_words in sizes:
        try:
            plans.append(plan(problem, fast_words, direction=direction))
        except UserError as error:
            refusal = error
    if not plans:
        assert refusal is not None
        raise refusal
    return plans


def _words_of(one: Plan, name: str) -> float | None:
    planned = one.by_name.get(name)
    return None if planned is None else float(planned.words)
