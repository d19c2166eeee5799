"""Is a claimed traffic possible? For which classes of algorithms not, and which schedules move less.

A claim below the bound of a class is impossible for every algorithm of that class, whatever its tiles and its order. A
claim above all bounds is not thereby reached: it may lie below every known schedule, where the question is open.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattention.core.errors import UserError
from wattention.iocomplexity.bounds.base import AlgorithmClass, Direction
from wattention.iocomplexity.planning.best_bound import BestBound, best_bound
from wattention.iocomplexity.planning.planner import Plan, PlannedSchedule, plan
from wattention.iocomplexity.problem.attention import Problem

JUDGED = (AlgorithmClass.ANY, AlgorithmClass.WRITE_ONLY, AlgorithmClass.RECOMPUTE, AlgorithmClass.ONCE)


@dataclass(frozen=True, kw_only=True)
class ClassVerdict:
    """The limit of one class, and the fast memory from which the class can move so little."""

    bound: BestBound
    possible: bool
    """False: no algorithm of the class moves so few words. True: its bound does not forbid it."""
    least_fast_words: int | None
    """The least M at which the bound of the class permits the claim; None when no M does."""

    @property
    def algorithm_class(self) -> AlgorithmClass:
        """The class."""
        return self.bound.algorithm_class


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claimed number of words beside the limits of each class and the known schedules."""

    words: float
    plan: Plan
    verdicts: tuple[ClassVerdict, ...]

    @property
    def impossible_for(self) -> AlgorithmClass | None:
        """The widest class the claim is impossible for."""
        return next((v.algorithm_class for v in self.verdicts if not v.possible), None)

    @property
    def better_schedules(self) -> tuple[PlannedSchedule, ...]:
        """Known schedules that move fewer words than claimed, the best first."""
        return tuple(p for p in self.plan.ranked if p.words < self.words)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        best = self.plan.best
        widest = self.impossible_for
        if widest is AlgorithmClass.ANY:
            return "Impossible for any algorithm: inputs must be read and outputs written."
        if widest is not None:
            return f"Impossible for {widest.meaning}; an algorithm outside that class would be needed."
        if best.words > self.words:
            return (
                f"Open: no bound forbids it, but the best known schedule ({best.name}) moves "
                f"{best.words / self.words:.2f} times as much."
            )
        if best.words == self.words:
            return f"Possible: {best.name} moves exactly that."
        return f"Possible: {best.name} moves {self.words / best.words:.2f} times less."


def check_claim(problem: Problem, words: float, fast_words: int, *, direction: Direction) -> Claim:
    """Compare a claimed traffic with the limits and the schedules.

    Args:
        problem: the problem, all heads and sequences.
        words: words the claim says are moved, loads and stores together.
        fast_words: M.
        direction: forward or backward pass.

    Raises:
        UserError: words not above 0, or a problem that no bound or schedule covers.
    """
    if words <= 0:
        raise UserError("claimed traffic", got=words, wanted="more than 0 words")
    verdicts = []
    for algorithm_class in JUDGED:
        bound = best_bound(problem, fast_words, direction=direction, algorithm_class=algorithm_class)
        least = _least_fast_words(problem, words, direction, algorithm_class)
        verdicts.append(ClassVerdict(bound=bound, possible=words >= bound.words, least_fast_words=least))
    return Claim(words=words, plan=plan(problem, fast_words, direction=direction), verdicts=tuple(verdicts))


def _least_fast_words(
    problem: Problem, words: float, direction: Direction, algorithm_class: AlgorithmClass
) -> int | None:
    """The least M whose bound is at most ``words``: bounds fall with M, so bisect."""

    def permitted(fast_words: int) -> bool:
        return words >= best_bound(problem, fast_words, direction=direction, algorithm_class=algorithm_class).words

    high = 8 * (problem.rows + problem.key_tokens) * (problem.key_dim + problem.value_dim)
    if not permitted(high):
        return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if permitted(middle) else (middle, high)
    return high
