"""Where parts of a problem lie in slow memory, and rows and keys that no pair reaches."""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.selection import Selection
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.masks import Bools, Ints


def value_source(problem: Problem) -> str:
    """The array whose first d_v features are the values: V, or K (absorbed multi-head latent attention)."""
    return "K" if problem.values_in_keys else "V"


class Started:
    """Which rows of a sum in slow memory have been written; known from the mask, not from data."""

    def __init__(self, length: int) -> None:
        self._started = np.zeros(length, np.bool_)

    def fresh(self, rows: Selection) -> Bools:
        """Whether each of the rows starts now; from now on none of them does."""
        fresh = ~self._started[rows]
        self._started[rows] = True
        return fresh

    def rest(self) -> Ints:
        """Rows that never started."""
        return np.flatnonzero(~self._started)


def fill_rows(machine: Machine, rows: Ints, **values: float) -> None:
    """Store a constant into whole rows that no pair reaches: their outputs are known, but must be written."""
    if len(rows):
        for name, value in values.items():
            machine.fill(name, rows, value)
