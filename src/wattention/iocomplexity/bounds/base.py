"""What a theorem file exports: the statement, the class it covers, when it applies, and the number.

Classes of algorithms, by inclusion: a bound for a class covers every algorithm of it and of the narrower ones.

    any  >  write-only  >  recompute  >  once  >  stored

A ratio of a schedule to a bound means something only when the bound covers the schedule's class, so both name theirs.
"Standard products" (docs/theory/model.md) leaves out Strassen-like products and algebraic shortcuts; it is part of all
classes but the first.

Word widths. The proofs count values, each at least one word wide. With all widths at least w words, at most M / w
values fit in fast memory and each value moved costs at least w words, so w times the bound at M / w holds:
:meth:`Bound.words` applies that rule to every theorem (compulsory traffic knows its widths exactly and says so by
``widths_exact``). Sharper bounds for mixed widths are not proved here and therefore not printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from wattention.core.errors import unknown_name
from wattention.iocomplexity.problem.attention import Problem

Direction = Literal["forward", "backward"]
Mechanism = Literal["softmax", "linear"]


class AlgorithmClass(Enum):
    """What an algorithm may do; members are ordered from the widest class to the narrowest."""

    ANY = "any", "any algorithm"
    WRITE_ONLY = "write-only", "standard products, atomics and recomputation allowed"
    """Partial sums may be added to slow memory without being read."""
    RECOMPUTE = "recompute", "standard products, recomputation allowed"
    """Every accumulator that returns to fast memory is read."""
    ONCE = "once", "standard products, scores formed once"
    """Every S_ij (and dP_ij) is formed exactly once, inside the run, with nothing n x n in slow memory before it."""
    STORED = "stored", "standard products, scores formed once and stored"
    """As once, and at least one word of every pair (S, P, dP or dS) is written to slow memory."""

    def __init__(self, label: str, meaning: str) -> None:
        self.label, self.meaning = label, meaning

    def covers(self, narrower: AlgorithmClass) -> bool:
        """Whether every algorithm of ``narrower`` belongs to this class."""
        order = list(AlgorithmClass)
        return order.index(self) <= order.index(narrower)

    @classmethod
    def named(cls, label: str) -> AlgorithmClass:
        """The class with this label."""
        for member in cls:
            if member.label == label:
                return member
        raise unknown_name("algorithm class", label, [member.label for member in cls])


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One theorem: no algorithm of ``algorithm_class`` moves fewer than ``words(problem, M)`` words.

    Args:
        name: the short name the reports print.
        statement: the formula, in the symbols of docs/theory.
        direction: forward or backward pass.
        algorithm_class: the widest class the proof covers.
        source: the paper, or "own proof" with its page in docs/theory.
        tight_up_to: how far the best known schedule is from it, and where.
        condition: why the theorem does not apply to a problem, or None.
        values: the bound in values (words when every width is 1), for a problem and M values of fast memory.
        mechanism: softmax attention, or linear attention with its state.
        widths_exact: whether ``values`` already counts words at their widths.
    """

    name: str
    statement: str
    direction: Direction
    algorithm_class: AlgorithmClass
    source: str
    tight_up_to: str
    values: Callable[[Problem, int], float]
    condition: Callable[[Problem], str | None]
    mechanism: Mechanism = "softmax"
    widths_exact: bool = False

    def reason_against(self, problem: Problem) -> str | None:
        """Why the theorem says nothing about this problem; None when it does."""
        return self.condition(problem)

    def words(self, problem: Problem, fast_words: int) -> float:
        """Words every algorithm of the class moves at least, for M = ``fast_words``; 0 when the formula is negative."""
        assert self.condition(problem) is None, f"{self.name} does not apply"
        if self.widths_exact:
            return self.values(problem, fast_words)
        widths = problem.widths
        narrowest = min(widths.inputs, widths.accumulators, widths.scratch)
        return max(0.0, narrowest * self.values(problem, max(1, fast_words // narrowest)))


def always(problem: Problem) -> None:
    """The condition of a theorem without conditions."""
    del problem


def distinct_values(problem: Problem) -> str | None:
    """The condition of the segment bounds: Q, K, V and dO are four different arrays."""
    return "the words of V are words of K: see the MLA bounds" if problem.values_in_keys else None


def shared_values(problem: Problem) -> str | None:
    """The condition of the MLA bounds: V is a part of K."""
    return None if problem.values_in_keys else "only for values that lie inside the keys (absorbed MLA)"


def choice_pairs(problem: Problem) -> int:
    """E of the whole problem: heads and batch add their pairs, and one subtractive term serves them all.

    F is superadditive (checked in the tests), so dividing the fast memory between heads never lets a segment do more.
    """
    return problem.copies * problem.choice_pairs


def single_key_rows(problem: Problem) -> int:
    """Rows with exactly one key, over the whole problem."""
    return problem.copies * problem.single_key_rows
