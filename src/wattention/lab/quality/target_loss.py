"""When a held-out loss has reached a target, and what that took: rules over a curve, no model and no clock.

The loss l_0, l_1, ... is evaluated before training and after every k steps. It is smoothed by a trailing mean of the
last n evaluations, the untrained one apart::

    s_0 = l_0        s_i = mean(l_max(1, i-n+1), ..., l_i)

The target X is reached at the first i whose s_i, ..., s_(i+p-1) are all at or below X (p is the patience). Where
between evaluations i-1 and i it was passed is interpolated on the smoothed curve; the two are the interval's ends. A
trailing mean lags behind a falling loss by (n - 1) / 2 evaluations, for every mechanism alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from wattention.core.run_spec import CellSpec


@dataclass(frozen=True, kw_only=True)
class TargetRule:
    """The rule of one cell: the loss to reach in bits per byte, how it is judged, and when to give up."""

    loss: float
    smoothing: int
    patience: int
    evaluate_every: int
    most_steps: int

    @classmethod
    def of(cls, cell: CellSpec) -> TargetRule:
        """Return the rule of a target cell, the run's defaults filled in."""
        run, target = cell.run, cell.run.target
        assert target is not None, "a run without a target has no target cells"
        assert cell.target_loss is not None, "the target is decided before the cell starts"
        steps = run.training.steps
        return cls(
            loss=cell.target_loss,
            smoothing=target.smoothing,
            patience=target.patience,
            evaluate_every=target.evaluate_every or max(1, steps // 12),
            most_steps=4 * steps if target.max_tokens is None else target.max_tokens // run.tokens_per_step,
        )


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Where a curve passed the target: between evaluations ``after`` - 1 and ``after``, at ``fraction`` of the way."""

    after: int
    fraction: float

    def at(self, series: Sequence[float]) -> tuple[float, float, float]:
        """Return a cumulative series at the crossing, and at the evaluations before and after it."""
        low, high = series[self.after - 1], series[self.after]
        return low + self.fraction * (high - low), low, high


def smoothed(losses: Sequence[float], window: int) -> list[float]:
    """Return the trailing means of a curve whose first point is the untrained model."""
    return [losses[i] if i == 0 else fmean(losses[max(1, i - window + 1) : i + 1]) for i in range(len(losses))]


def find_crossing(losses: Sequence[float], rule: TargetRule) -> Crossing | None:
    """Return where a curve reached the target for good enough; None where it has not.

    An untrained model at or below the target has passed it at no cost: crossing 0, which has no evaluation before it.
    """
    curve = smoothed(losses, rule.smoothing)
    for i in range(len(curve) - rule.patience + 1):
        if all(value <= rule.loss for value in curve[i : i + rule.patience]):
            if i == 0:
                return Crossing(after=0, fraction=0.0)
            return Crossing(after=i, fraction=(curve[i - 1] - rule.loss) / (curve[i - 1] - curve[i]))
    return None


def explain_missing(losses: Sequence[float], rule: TargetRule, tokens: float) -> str:
    """Say why a curve without a crossing has none, with the best it came to."""
    best = min(smoothed(losses, rule.smoothing))
    words = f"not reached within {tokens:.0f} tokens: the best smoothed held-out loss is {best:.4f} bits per byte"
    if best <= rule.loss:
        words += f", at or below the target of {rule.loss:.4f}, but not at {rule.patience} evaluations in a row"
    return words
