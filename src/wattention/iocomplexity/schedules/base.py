"""What a schedule is: one way to compute attention on the memory machine, with its tiles and its exact cost.

Each file of this folder holds one algorithm and exports ``SCHEDULE``. The algorithm is written once, in ``run``; the
machine
turns it into a result, a count, an address trace or a graph. ``plan`` chooses tiles for M words, ``predict`` gives the
count of those tiles without running: equal to the machine's count, word for word, for every mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from wattention.core.catalog import Catalog
from wattention.core.errors import UserError
from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.problem.attention import Problem

Tiles = Mapping[str, int]
Direction = Literal["forward", "backward"]
Form = Literal["attention", "input-side", "linear"]
Saved = Literal["nothing", "probabilities", "scores"]


class FastMemoryTooSmallError(UserError):
    """No tiles of a schedule fit into fast memory; ``least_words`` words would do."""

    def __init__(self, name: str, *, got: int, least_words: int) -> None:
        self.least_words = least_words
        super().__init__(
            f"the schedule {name} does not fit into fast memory",
            got=f"{got} words",
            wanted=f"at least {least_words} words",
            do="give it more fast memory, or choose another schedule",
        )


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What lower bounds need to know about an algorithm: the class it belongs to."""

    forms_scores_once: bool
    """Every score (and every dP) is formed exactly once inside the run, from its d products."""
    materialises: bool
    """Words of the n x n matrices pass through slow memory."""
    remote_adds: bool = False
    """Sums in slow memory grow by stores alone (atomic adds)."""
    starts_from: Saved = "nothing"
    """What n x n words the forward has left in slow memory."""


def supports_everything(problem: Problem) -> str | None:
    """The schedule serves every problem of its form."""
    return "values lie inside the keys, whose gradients would be one array" if problem.values_in_keys else None


def supports_shared_values(problem: Problem) -> str | None:
    """The schedule serves every problem of its form, also values that lie inside the keys."""
    del problem
    return None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One algorithm.

    Args:
        name: the file's name.
        title: how tables call it.
        direction: forward or backward.
        source: paper and section, or "this project".
        facts: the class of algorithms it belongs to.
        plan: (problem, words of fast memory) -> tiles; raises FastMemoryTooSmallError.
        predict: (problem, tiles) -> exact count of one copy of the problem.
        run: (machine, problem, tiles) -> None; inputs are in the machine's slow memory, outputs end there.
        refuses: the reason why a problem is not supported, or None.
        form: which inputs it starts from.
    """

    name: str
    title: str
    direction: Direction
    source: str
    facts: Facts
    plan: Callable[[Problem, int], Tiles]
    predict: Callable[[Problem, Tiles], Count]
    run: Callable[[Machine, Problem, Tiles], None]
    refuses: Callable[[Problem], str | None] = supports_everything
    form: Form = "attention"


SCHEDULES: Catalog[Schedule] = Catalog(
    kind="schedule",
    package="wattention.iocomplexity.schedules",
    export="SCHEDULE",
    record=Schedule,
    not_plugins=frozenset({"base"}),
)
