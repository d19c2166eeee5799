"""Was a training window in its steady state? A trend of the step times says no.

A window drifts, by this rule, when both hold:

* the line of Theil and Sen through its step times (the median of all slopes between two steps, which no single slow
  step can move) rises or falls by more than :data:`DRIFT_LIMIT` of the median step over the window, and
* Kendall's test rejects "no trend" at :data:`DRIFT_LEVEL` (Mann 1945; normal approximation from ten steps on).

The first alone would flag noise, the second alone a trend that matters to nobody. Long windows are averaged over equal
stretches first, which also takes out what neighbouring steps share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from wattention.core.records import Phase

DRIFT_LIMIT = 0.05
DRIFT_LEVEL = 0.01
LEAST_STEPS = 10
STRETCHES = 200
"""Most points of the trend; the pairs of them are counted."""

Flag = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The trend of a window's steps: its change from the first to the last, over the median step, and its p-value."""

    change: float
    p_value: float
    steps: int

    @property
    def flagged(self) -> bool:
        """The window was not in its steady state, by the rule of this module."""
        return abs(self.change) > DRIFT_LIMIT and self.p_value < DRIFT_LEVEL


def find_drift(step_s: Sequence[float]) -> Drift | None:
    """Return the trend of the steps' seconds, in order; None below :data:`LEAST_STEPS` steps, which show none."""
    steps = len(step_s)
    if steps < LEAST_STEPS:
        return None
    stretch = -(-steps // STRETCHES)
    whole = steps // stretch * stretch
    y = np.asarray(step_s[:whole], dtype=float).reshape(-1, stretch).mean(axis=1)
    n = len(y)
    first, second = np.triu_indices(n, 1)
    rises = y[second] - y[first]
    middle = float(np.median(y))
    change = float(np.median(rises / (second - first))) * (n - 1) / middle if middle > 0 else 0.0
    z = abs(float(np.sign(rises).sum())) / (n * (n - 1) * (2 * n + 5) / 18) ** 0.5
    return Drift(change=change, p_value=float(2 * ndtr(-z)), steps=steps)


def flags_of(phase: Phase) -> tuple[Flag, ...]:
    """Return what disturbed a window: the flags its meters raised, and drift where its steps show it."""
    drift = find_drift(phase.samples.get("step_s", ()))
    if drift is None or not drift.flagged:
        return tuple(phase.flags)
    message = (
        f"steps went {'up' if drift.change > 0 else 'down'} by {abs(drift.change):.0%} over the window "
        f"(limit {DRIFT_LIMIT:.0%}; Kendall's test of no trend: p = {drift.p_value:.1g})"
    )
    return (*phase.flags, {"kind": "drift", "message": message})
