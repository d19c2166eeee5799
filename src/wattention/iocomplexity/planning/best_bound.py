"""Which lower bound is active for a problem, for which class of algorithms, and which do not apply and why.

For a class, every bound whose own class covers it holds; the largest is active. Example: the forward of algorithms that
form each score once must obey C_f (any algorithm), A and B' (recomputation allowed) and B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from wattention.core.errors import UserError
from wattention.core.quantities import Quantity
from wattention.iocomplexity.bounds import BOUNDS
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, Direction, Mechanism
from wattention.iocomplexity.problem.attention import Problem


@dataclass(frozen=True, kw_only=True)
class BoundValue:
    """A bound that applies, and its words."""

    bound: Bound
    words: float


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A bound that says nothing here, and why."""

    bound: Bound
    reason: str


@dataclass(frozen=True, kw_only=True)
class BestBound:
    """The largest bound that covers a class, all others that hold, and those that do not apply."""

    algorithm_class: AlgorithmClass
    active: BoundValue
    holding: tuple[BoundValue, ...]
    excluded: tuple[Excluded, ...]

    @property
    def words(self) -> float:
        """Words every algorithm of the class moves at least."""
        return self.active.words

    @property
    def quantity(self) -> Quantity:
        """The number with its origin."""
        source = f"{self.active.bound.name}, {self.active.bound.source}"
        return Quantity(value=self.words, unit="word", origin="bound", source=source)


@cache
def all_bounds() -> tuple[Bound, ...]:
    """Every theorem of the folder."""
    return tuple(BOUNDS.load(name) for name in BOUNDS.names())


def best_bound(
    problem: Problem,
    fast_words: int,
    *,
    direction: Direction,
    algorithm_class: AlgorithmClass = AlgorithmClass.ONCE,
    mechanism: Mechanism = "softmax",
) -> BestBound:
    """The active lower bound for a class of algorithms.

    Args:
        problem: the attention problem; all heads and sequences count.
        fast_words: M, words of fast memory.
        direction: forward or backward pass.
        algorithm_class: the class to cover; narrower classes obey more bounds.
        mechanism: softmax attention, or linear attention.

    Raises:
        UserError: M below 1, or no bound covers the problem (e.g. the backward of absorbed MLA).
    """
    if fast_words < 1:
        raise UserError("words of fast memory", got=fast_words, wanted="at least 1")
    holding: list[BoundValue] = []
    excluded: list[Excluded] = []
    for bound in all_bounds():
        if bound.direction != direction or bound.mechanism != mechanism:
            continue
        reason = bound.reason_against(problem)
        if reason is None and not bound.algorithm_class.covers(algorithm_class):
            reason = f"covers only: {bound.algorithm_class.meaning}"
        if reason is None:
            holding.append(BoundValue(bound=bound, words=bound.words(problem, fast_words)))
        else:
            excluded.append(Excluded(bound=bound, reason=reason))
    if not holding:
        raise UserError(
            f"no lower bound is known for the {direction} pass of this problem",
            got="; ".join(f"{e.bound.name}: {e.reason}" for e in excluded),
            do="ask for the forward pass",
        )
    holding.sort(key=lambda value: -value.words)
    return BestBound(
        algorithm_class=algorithm_class, active=holding[0], holding=tuple(holding), excluded=tuple(excluded)
    )
