"""Where one schedule overtakes another: M*, the least fast memory at which the second moves no more words.

Both counts are step functions of M (tiles are whole), so the crossing found by bisection is exact up to the steps
near it. In units of d^2 the leading terms predict, for the forward, 1 (FlashAttention-2 order against small-cache),
and for the backward 1 (hybrid against small-cache), 2.5 (seven products) and 3.5 (five products) against the hybrid.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.planning.planner import Plan, all_schedules, plan
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import FastMemoryTooSmallError, Schedule

MARGIN = 0.02
"""Share of the words by which a new winner must be better before the old one gives way along a curve."""


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


def steady_winners(plans: list[Plan]) -> list[str]:
    """The winner at each M of rising plans; a winner stays until another moves :data:`MARGIN` fewer words.

    Whole tiles make counts jump by a percent or two, and schedules of one family would otherwise take turns.
    """
    winners: list[str] = []
    for one in plans:
        kept = bool(winners) and _holds(one, winners[-1])
        winners.append(winners[-1] if kept else one.best.name)
    return winners


def _holds(one: Plan, name: str) -> bool:
    planned = one.by_name.get(name)
    return planned is not None and planned.words <= (1 + MARGIN) * one.best.words


def winner_changes(problem: Problem, plans: list[Plan]) -> list[Crossover]:
    """The crossings of the steady winner along plans of rising M, each refined by bisection."""
    winners = steady_winners(plans)
    found = []
    for (one, before), (next_one, after) in pairwise(zip(plans, winners, strict=True)):
        if before == after:
            continue
        low, high = one.fast_words, next_one.fast_words
        while high - low > max(1, low // 1000):
            middle = (low + high) // 2
            kept = _holds(plan(problem, middle, direction=one.direction), before)
            low, high = (middle, high) if kept else (low, middle)
        found.append(Crossover(before=before, after=after, fast_words=high))
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
