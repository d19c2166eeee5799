"""For a problem and M words of fast memory: every schedule with its best tiles, ranked by the words it moves.

The folder ``schedules/`` is the search space: each file plans its own tiles in closed form, so a whole ranking takes
milliseconds (the first place alone, one). Beside each schedule stands the largest lower bound that covers the class of
algorithms it belongs to, found when asked for; a ratio of the two means something only with that class, which is why it
is never printed without.

Counting. ``words`` counts everything that moves. Mappers that know tensors only keep softmax statistics and the row
sums D beside their model; ``Widths(statistics=0)`` plans under the same rule, and ``matrix_words`` leaves the pass that
makes D out, so that like is compared with like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Literal

from wattention.core.errors import UserError
from wattention.iocomplexity.bounds.base import AlgorithmClass, Direction
from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.planning.best_bound import BestBound, best_bound
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import SCHEDULES, FastMemoryTooSmallError, Schedule, Tiles

Form = Literal["attention", "input-side", "linear"]
BoundOf = Callable[[AlgorithmClass], BestBound | None]


@dataclass(frozen=True, kw_only=True)
class PlannedSchedule:
    """One schedule with its tiles, what it moves for the whole problem, and the bound of its class."""

    schedule: Schedule
    tiles: Tiles
    predicted: Count
    """Exact cost of one copy of the problem."""
    copies: int
    bound_of: BoundOf = field(compare=False, repr=False)
    """The largest bound that covers a class; those of one plan share it, so that each class is asked once."""

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.schedule.name

    @property
    def algorithm_class(self) -> AlgorithmClass:
        """The class its ratio is about."""
        return class_of(self.schedule)

    @property
    def bound(self) -> BestBound | None:
        """The largest bound that covers the schedule's class; None where no theorem covers the form."""
        return self.bound_of(self.algorithm_class)

    @property
    def loads(self) -> int:
        """Words loaded, all copies."""
        return self.copies * self.predicted.loads

    @property
    def stores(self) -> int:
        """Words stored, all copies."""
        return self.copies * self.predicted.stores

    @property
    def words(self) -> int:
        """Words moved, all copies."""
        return self.copies * self.predicted.words

    @property
    def matrix_words(self) -> int:
        """Words moved without statistics, all copies."""
        return self.copies * self.predicted.matrix_words

    @property
    def flop(self) -> int:
        """Floating-point operations of the matrix products, all copies."""
        return self.copies * self.predicted.flop

    @property
    def ratio(self) -> float | None:
        """Words over the bound of its class."""
        return self.words / self.bound.words if self.bound is not None and self.bound.words > 0 else None


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A schedule that cannot serve the problem or does not fit, and why."""

    name: str
    reason: str
    least_words: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All schedules of one pass, the best first."""

    problem: Problem
    fast_words: int
    direction: Direction
    form: Form
    ranked: tuple[PlannedSchedule, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def best(self) -> PlannedSchedule:
        """The schedule that moves the fewest words."""
        return self.ranked[0]

    @cached_property
    def by_name(self) -> dict[str, PlannedSchedule]:
        """The ranked schedules by name."""
        return {planned.name: planned for planned in self.ranked}

    def bound(self, algorithm_class: AlgorithmClass) -> BestBound:
        """The active bound for a class of algorithms."""
        return best_bound(
            self.problem,
            self.fast_words,
            direction=self.direction,
            algorithm_class=algorithm_class,
            mechanism="linear" if self.form == "linear" else "softmax",
        )

    def best_of(self, algorithm_class: AlgorithmClass) -> PlannedSchedule | None:
        """The best schedule that belongs to a class."""
        return next((p for p in self.ranked if algorithm_class.covers(p.algorithm_class)), None)


def class_of(schedule: Schedule) -> AlgorithmClass:
    """The narrowest class with a ratio of its own that a schedule belongs to.

    Schedules that store their scores obey one bound more (:data:`AlgorithmClass.STORED`), but are compared in the class
    that forms scores once: that is where a better schedule would have to be looked for.
    """
    facts = schedule.facts
    if facts.remote_adds:
        return AlgorithmClass.WRITE_ONLY
    if not facts.forms_scores_once or facts.starts_from != "nothing":
        return AlgorithmClass.RECOMPUTE
    return AlgorithmClass.ONCE


@cache
def all_schedules() -> tuple[Schedule, ...]:
    """Every schedule of the folder."""
    return tuple(SCHEDULES.load(name) for name in SCHEDULES.names())


def plan(
    problem: Problem,
    fast_words: int,
    *,
    direction: Direction,
    form: Form = "attention",
    atomics: bool = False,
    saved: bool = False,
    schedules: Iterable[Schedule] | None = None,
) -> Plan:
    """Rank all schedules of one pass by the words they move.

    Args:
        problem: the attention problem.
        fast_words: M, words of fast memory.
        direction: forward or backward pass.
        form: which inputs the schedules start from.
        atomics: also rank schedules whose sums grow in slow memory by stores alone, which the two-level model lacks.
        saved: also rank backward schedules that start from n x n words, which the forward must then have stored.
        schedules: the search space; the whole folder when None.

    Raises:
        UserError: M below 1; or no schedule fits or serves the problem, with the least M that works.
    """
    if fast_words < 1:
        raise UserError("words of fast memory", got=fast_words, wanted="at least 1", do="write e.g. 192KiB or 8192w")
    bound_of = cache(partial(_bound, problem, fast_words, direction, form))
    ranked: list[PlannedSchedule] = []
    left_out: list[LeftOut] = []
    for schedule in all_schedules() if schedules is None else schedules:
        if schedule.direction != direction or schedule.form != form:
            continue
        reason = _reason_against(schedule, problem, atomics=atomics, saved=saved)
        if reason is not None:
            left_out.append(LeftOut(name=schedule.name, reason=reason))
            continue
        try:
            ranked.append(_planned(schedule, problem, fast_words, bound_of))
        except FastMemoryTooSmallError as error:
            least = error.least_words
            left_out.append(LeftOut(name=schedule.name, reason=f"needs {least} words", least_words=least))
    if not ranked:
        raise _nothing_fits(direction, fast_words, left_out)
    ranked.sort(key=_rank)
    return Plan(
        problem=problem,
        fast_words=fast_words,
        direction=direction,
        form=form,
        ranked=tuple(ranked),
        left_out=tuple(left_out),
    )


def best_schedule(problem: Problem, fast_words: int, *, direction: Direction) -> PlannedSchedule:
    """Return what :func:`plan` ranks first, without planning schedules that cannot win.

    Schedules that take n x n matrices through slow memory store and load a word of every pair, beside the compulsory
    traffic. The others come first: most levels of most devices are large enough for one of them to move less than that.

    Raises:
        UserError: as :func:`plan`.
    """
    bound_of = cache(partial(_bound, problem, fast_words, direction, "attention"))
    compulsory = bound_of(AlgorithmClass.ANY)
    least = 2 * problem.copies * problem.pairs * problem.widths.scratch + (compulsory.words if compulsory else 0.0)
    best: PlannedSchedule | None = None
    for schedule in sorted(all_schedules(), key=lambda s: s.facts.materialises):
        if schedule.direction != direction or schedule.form != "attention":
            continue
        if best is not None and schedule.facts.materialises and least > best.words:
            break
        if _reason_against(schedule, problem) is None:
            with suppress(FastMemoryTooSmallError):
                planned = _planned(schedule, problem, fast_words, bound_of)
                best = planned if best is None else min(best, planned, key=_rank)
    if best is None:
        return plan(problem, fast_words, direction=direction).best  # which says why there is none
    return best


def _reason_against(schedule: Schedule, problem: Problem, *, atomics: bool = False, saved: bool = False) -> str | None:
    """Why a schedule is left out before it is planned; None when it is not."""
    facts = schedule.facts
    reason = schedule.refuses(problem)
    if reason is None and facts.remote_adds and not atomics:
        reason = "adds to slow memory without reading (atomics), outside the two-level model"
    if reason is None and facts.starts_from != "nothing" and not saved:
        reason = f"starts from {facts.starts_from} that the forward must have stored"
    return reason


def _planned(schedule: Schedule, problem: Problem, fast_words: int, bound_of: BoundOf) -> PlannedSchedule:
    tiles = schedule.plan(problem, fast_words)
    predicted = schedule.predict(problem, tiles)
    return PlannedSchedule(
        schedule=schedule, tiles=tiles, predicted=predicted, copies=problem.copies, bound_of=bound_of
    )


def _rank(planned: PlannedSchedule) -> tuple[int, int, int]:
    """Fewest words first, then least room in slow memory, then least arithmetic."""
    return planned.words, planned.predicted.scratch_words, planned.flop


def _bound(
    problem: Problem, fast_words: int, direction: Direction, form: Form, own_class: AlgorithmClass
) -> BestBound | None:
    """The bound of a class, or None for forms whose inputs no theorem here starts from."""
    if form == "input-side" or (form == "linear" and direction == "backward"):
        return None
    if problem.values_in_keys and direction == "backward":
        return None
    mechanism: Literal["softmax", "linear"] = "linear" if form == "linear" else "softmax"
    return best_bound(problem, fast_words, direction=direction, algorithm_class=own_class, mechanism=mechanism)


def _nothing_fits(direction: Direction, fast_words: int, left_out: list[LeftOut]) -> UserError:
    fitting = [one for one in left_out if one.least_words is not None]
    if not fitting:
        reasons = "; ".join(sorted({one.reason for one in left_out})) or "no schedule of this form"
        return UserError(f"no {direction} schedule serves this problem", got=reasons)
    least = min(fitting, key=lambda one: one.least_words or 0)
    return UserError(
        f"fast memory is too small for every {direction} schedule",
        got=f"{fast_words} words",
        wanted=f"at least {least.least_words} words ({least.name})",
        do=f"give at least {least.least_words}w of fast memory, or make the head dimension smaller",
    )
