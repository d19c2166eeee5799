"""How a run holds quality equal: train to a target loss, match the model's size, find each learning rate.

A fixed number of tokens answers "what does a step cost"; a target answers "what does the same quality cost". Neither
is fair between models of different size, nor under a learning rate that suits only one of the mechanisms.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from wattention.core.errors import UserError
from wattention.core.specs import Spec

Match = Literal["named", "params", "flops"]
"""``named``: every mechanism as its paper builds it; ``params``, ``flops``: the MLP's width is chosen per mechanism so
that the model's parameters, or its training FLOPs per token, are those of the reference within 1 %."""


class TargetSpec(Spec):
    """Train every mechanism until its held-out loss reaches a target: the cells ``target``, after all the blocks.

    The held-out loss is evaluated every ``evaluate_every`` steps, outside of what is timed, and smoothed by the mean of
    the last ``smoothing`` evaluations. The target counts as reached when ``patience`` evaluations in a row, smoothed,
    are at or below it, at the first of them.
    """

    loss: float | Literal["auto"]
    """Bits per byte on held-out text. ``auto``: the mean over blocks of the reference's loss at the end of the fixed
    tokens, read from the records of its training cells; the same number for every mechanism and block."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens to train on, rounded down to whole steps; 4 x the fixed tokens unless given."""
    evaluate_every: int | None = Field(default=None, ge=1)
    """Steps between two evaluations; a twelfth of the fixed steps unless given."""
    smoothing: int = Field(default=3, ge=1)
    patience: int = Field(default=2, ge=1)

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if self.loss != "auto" and not 0 < self.loss < float("inf"):
            raise UserError("the target loss", got=self.loss, wanted="bits per byte on held-out text, above 0, or auto")
        return self


class TuneSpec(Spec):
    """Find each mechanism's learning rate: the cells ``tune``, one a mechanism, before the blocks.

    Every mechanism tries the same rates, each in a fresh model for the same short probe of ``steps`` optimiser steps
    (a whole warm-up and cosine of its own), on the run's first seed. The lowest loss on a validation split wins, which
    shares no window with the held-out text that is reported. The search's time, tokens and energy are recorded.
    """

    learning_rates: tuple[float, ...] = Field(min_length=1)
    steps: int | None = Field(default=None, ge=1)
    """Steps of one probe; a quarter of the fixed steps, at least 10, unless given."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        rates = self.learning_rates
        if any(not 0 < rate < float("inf") for rate in rates) or len(set(rates)) < len(rates):
            words = ",".join(f"{rate:g}" for rate in rates)
            raise UserError("learning rates to try", got=words, wanted="different numbers above 0, e.g. 3e-4,1e-3,3e-3")
        return self
