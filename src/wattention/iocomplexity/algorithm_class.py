"""Classes of algorithms, by inclusion: a bound for a class covers every algorithm of it and of the narrower ones.

    any  >  write-only  >  recompute  >  once  >  stored

A ratio of a schedule to a bound means something only when the bound covers the schedule's class, so both name theirs.
"Standard products" (docs/theory/model.md) leaves out Strassen-like products and algebraic shortcuts; it is part of all
classes but the first.
"""

from __future__ import annotations

from enum import Enum


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
        from wattention.core.errors import unknown_name

        for member in cls:
            if member.label == label:
                return member
        raise unknown_name("algorithm class", label, [member.label for member in cls])
