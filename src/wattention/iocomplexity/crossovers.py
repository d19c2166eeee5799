"""Where one schedule overtakes another: M*, the least fast memory at which the second moves no more words.

Both counts are step functions of M (tiles are whole), so the crossing found by bisection is exact up to the steps
near it. In units of d^2 the leading terms predict, for the forward, 1 (FlashAttention-2 order against small-cache),
and for the backward 1 (hybrid against small-cache), 2.5 (seven products) and 3.5 (five products) against the hybrid.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.planner import Plan, all_schedules, plan
from wattention.iocomplexity.problem import Problem
from wattention.iocomplexity.schedules.base import FastMemoryTooSmallError, Schedule


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """``after`` moves no more words than ``before`` from ``fast_words`` on."""

    before: str
    after: str
    fast_words: int

    def per_square(self, head_dim: int) -> float:
        """M* in units of d^2."""
        return self.fast_words / head_dim**2


def crossover(problem: Problem, before: str, after: str, *, low: int, high: int) -> Crossover:
    """The fast memory in [low, high] at which ``after`` overtakes ``before``.

    Args:
        problem: the problem.
        before: the schedule that is better at ``low``.
        after: the schedule that is better at ``high``.
        low: words of fast memory below the crossing.
        high: words of fast memory above it.

    Raises:
        UserError: an unknown schedule, or no crossing between ``low`` and ``high``.
    """
    first, second = _named(before), _named(after)

    def overtaken(fast_words: int) -> bool:
        return _words(second, problem, fast_words) <= _words(first, problem, fast_words)

    if overtaken(low) or not overtaken(high):
        raise UserError(
            f"{after} does not overtake {before} in this range",
            got=f"{low} to {high} words of fast memory",
            wanted=f"a range in which {before} moves fewer words at its start and {after} at its end",
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if overtaken(middle) else (middle, high)
    return Crossover(before=before, after=after, fast_words=high)


def winner_changes(problem: Problem, plans: list[Plan]) -> list[Crossover]:
    """The crossings of the winning schedule along plans of rising M, each refined by bisection."""
    found = []
    for one, next_one in pairwise(plans):
        if one.best.name == next_one.best.name:
            continue
        low, high = one.fast_words, next_one.fast_words
        while high - low > max(1, low // 1000):
            middle = (low + high) // 2
            same = plan(problem, middle, direction=one.direction).best.name == one.best.name
            low, high = (middle, high) if same else (low, middle)
        after = plan(problem, high, direction=one.direction).best.name
        found.append(Crossover(before=one.best.name, after=after, fast_words=high))
    return found


def _named(name: str) -> Schedule:
    by_name = {schedule.name: schedule for schedule in all_schedules()}
    if name not in by_name:
        raise unknown_name("schedule", name, by_name)
    return by_name[name]


def _words(schedule: Schedule, problem: Problem, fast_words: int) -> float:
    try:
        return float(schedule.predict(problem, schedule.plan(problem, fast_words)).words)
    except FastMemoryTooSmallError:
        return float("inf")
