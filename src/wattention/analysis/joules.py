"""Where the joules go: a regression of energy on time, FLOPs and bytes over mechanisms and lengths.

Model of one window: what runs while the device is on costs power, what is computed costs joules per FLOP, what is moved
costs joules per byte, and nothing costs less than nothing::

    E = P t + e_flop F + e_byte B,      P, e_flop, e_byte >= 0

fitted to relative errors, min sum ((P t + e_flop F + e_byte B) / E - 1)^2 by non-negative least squares (Lawson and
Hanson 1974), so that a long window counts no more than a short one.

How much each explains of the *difference between mechanisms*: within a block and a group of equal work every amount
loses its mean over the mechanisms and is divided by their mean energy. R^2 of the energies' deviations is then shared
out over the predictors by its mean increment over all orders of entry (Shapley 1953; LMG of Lindeman, Merenda and Gold
1980); shares add up to R^2.

Intervals: blocks are drawn with replacement; the standard deviation over draws, times sqrt(b / (b - 1)) for drawing
from b blocks only, times Student's quantile with b - 1 degrees of freedom. One block has no interval.

Predictors that go together cannot be told apart, by this or any regression: the condition number of the columns scaled
to unit length says so (Belsley, Kuh and Welsch 1980, who take 30 as the limit), and then no coefficient is a finding.
Each mechanism is also predicted from the others alone, which shows what the model is worth for a new one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls  # type: ignore[attr-defined]  # scipy names no exports
from scipy.special import stdtrit

from wattention.analysis.blocks import CONFIDENCE, Estimate

UNITS = {"time": "W", "flop": "J/flop", "bytes": "J/byte", "cpu": "W"}
"""Unit of a predictor's coefficient; ``cpu`` are CPU seconds, which only estimates are made of."""
PREDICTORS = ("time", "flop", "bytes")
DRAWS = 500
CONDITION_LIMIT = 30.0
TOGETHER = 0.95
"""Correlation of two predictors' differences between mechanisms from which on they are said to go together."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Load:
    """One window: which mechanism did which work, in which block, and what it took.

    Args:
        group: windows of one group do the same work with different mechanisms, e.g. ``train`` or ``T=1024``.
        amounts: by predictor: seconds, FLOPs, bytes.
    """

    mechanism: str
    group: str
    block: int
    energy_j: float
    amounts: Mapping[str, float]

    def __post_init__(self) -> None:
        assert self.energy_j > 0, f"{self.mechanism}: {self.energy_j} J"


@dataclass(frozen=True, kw_only=True)
class Collinearity:
    """How far the predictors can be told apart.

    Args:
        condition: condition number of the scaled columns; infinite where one is a multiple of others.
        together: pairs whose differences between mechanisms are correlated by :data:`TOGETHER` or more, with r.
    """

    condition: float
    together: tuple[tuple[str, str, float], ...]

    @property
    def severe(self) -> bool:
        """No coefficient can be read off."""
        return not self.condition < CONDITION_LIMIT


@dataclass(frozen=True, kw_only=True)
class JouleModel:
    """The fitted regression.

    Args:
        coefficients: by predictor, in the units of :data:`UNITS`.
        shares: of the squared differences between mechanisms, by predictor; they add up to ``explained``.
        explained: R^2 of those differences.
        errors: mean relative error of each mechanism's joules when it is predicted from the others.
        fit_error: mean relative error of the fit itself.
        blocks: blocks that the intervals rest on.
    """

    coefficients: Mapping[str, Estimate]
    shares: Mapping[str, Estimate]
    explained: Estimate
    errors: Mapping[str, float]
    fit_error: float
    collinearity: Collinearity
    loads: tuple[Load, ...]
    blocks: int

    @property
    def identified(self) -> bool:
        """The coefficients may be read as joules of this device: predictors differ enough."""
        return not self.collinearity.severe

    def predict_joules(self, load: Load) -> float:
        """Joules the fit gives a window."""
        return sum(estimate.value * load.amounts[name] for name, estimate in self.coefficients.items())


def explain_joules(loads: Sequence[Load], predictors: Sequence[str] = PREDICTORS, *, seed: int = 0) -> JouleModel | str:
    """Fit the regression; return the reason in words where the loads are too few for it.

    Args:
        loads: windows of at least two mechanisms, more windows than predictors.
        predictors: names of the amounts to explain the energy by.
        seed: of the draws.
    """
    mechanisms = sorted({load.mechanism for load in loads})
    cases = {(load.mechanism, load.group) for load in loads}
    if len(mechanisms) < 2 or len(cases) <= len(predictors):
        return (
            f"{len(predictors)} coefficients need more than {len(predictors)} different windows of two mechanisms or "
            f"more; there are {len(cases)} of {len(mechanisms)}"
        )
    blocks = sorted({load.block for load in loads})
    fits = _grams(_relative_rows(loads, predictors), [load.block for load in loads], blocks)
    kept, deviations = _deviations(loads, predictors)
    spreads = _grams(deviations, [load.block for load in kept], blocks)
    draws, which = np.unique(_draw_blocks(len(blocks), seed), axis=0, return_inverse=True)
    betas = np.array([_solve(np.tensordot(times, fits, axes=1)) for times in draws])[np.ravel(which)]
    shares = np.array([_shares(np.tensordot(times, spreads, axes=1)) for times in draws])[np.ravel(which)]
    names = list(predictors)
    return JouleModel(
        coefficients={name: _estimate(betas[:, i], len(blocks)) for i, name in enumerate(names)},
        shares={name: _estimate(shares[:, i], len(blocks), most=1.0) for i, name in enumerate(names)},
        explained=_estimate(shares.sum(axis=1), len(blocks), most=1.0),
        errors={name: _error_without(name, loads, predictors) for name in mechanisms},
        fit_error=_mean_error(loads, predictors, betas[0]),
        collinearity=_collinearity(fits.sum(axis=0), spreads.sum(axis=0), names),
        loads=tuple(loads),
        blocks=len(blocks),
    )


def _draw_blocks(blocks: int, seed: int) -> Matrix:
    """How often each block is in each draw, (1 + draws, blocks); the first row are the data themselves.

    Few blocks have few different draws (b of b are a multiset: 35 for b = 4), and each of them would be solved anew.
    """
    if blocks < 2:
        return np.ones((1, 1))
    drawn = np.random.default_rng(seed).integers(0, blocks, size=(DRAWS, blocks))
    times = np.array([np.bincount(row, minlength=blocks) for row in drawn], dtype=float)
    return np.concatenate([np.ones((1, blocks)), times])


def _relative_rows(loads: Sequence[Load], predictors: Sequence[str]) -> Matrix:
    """One row a window: its amounts over its energy, and the 1 they should add up to."""
    return np.array([[*(load.amounts[name] / load.energy_j for name in predictors), 1.0] for load in loads])


def _deviations(loads: Sequence[Load], predictors: Sequence[str]) -> tuple[list[Load], Matrix]:
    """Amounts and energies less their mean over the mechanisms of the same block and group, over the mean energy."""
    groups: dict[tuple[int, str], list[Load]] = {}
    for load in loads:
        groups.setdefault((load.block, load.group), []).append(load)
    kept: list[Load] = []
    rows: list[Matrix] = []
    for group in groups.values():
        values = np.array([[*(load.amounts[name] for name in predictors), load.energy_j] for load in group])
        mean = values.mean(axis=0)
        rows.append((values - mean) / mean[-1])
        kept += group
    return kept, np.concatenate(rows)


def _grams(rows: Matrix, of: Sequence[int], blocks: Sequence[int]) -> Matrix:
    """A^T A of each block's rows: all that least squares needs of them, (blocks, columns, columns)."""
    labels = np.array(of)
    return np.array([rows[labels == block].T @ rows[labels == block] for block in blocks])


def _solve(gram: Matrix, chosen: Sequence[int] | None = None) -> Matrix:
    """Non-negative least squares of the last column on the chosen others, from the Gram matrix of them all."""
    columns = list(range(len(gram) - 1)) if chosen is None else list(chosen)
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    # rows with the same products as the data's own; without squaring, a Cholesky factor would fail when columns agree
    rows = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    beta = np.zeros(len(gram) - 1)
    beta[columns] = nnls(rows[:, columns], rows[:, -1])[0] * scale[-1] / scale[columns]
    return beta


def _explained(gram: Matrix, chosen: Sequence[int]) -> float:
    """R^2 about zero, which is the mean of deviations, of the last column on the chosen ones."""
    if not chosen or not gram[-1, -1]:
        return 0.0
    beta = _solve(gram, chosen)
    error = gram[-1, -1] - 2 * beta @ gram[:-1, -1] + beta @ gram[:-1, :-1] @ beta
    return float(np.clip(1 - error / gram[-1, -1], 0, 1))


def _shares(gram: Matrix) -> Matrix:
    """Each predictor's mean increment of R^2 over all orders of entry."""
    count = len(gram) - 1
    known: dict[frozenset[int], float] = {}

    def explained(chosen: frozenset[int]) -> float:
        if chosen not in known:
            known[chosen] = _explained(gram, sorted(chosen))
        return known[chosen]

    shares = np.zeros(count)
    for order in permutations(range(count)):
        for position, name in enumerate(order):
            before = frozenset(order[:position])
            shares[name] += explained(before | {name}) - explained(before)
    return shares / math.factorial(count)


def _estimate(values: Matrix, blocks: int, *, most: float = math.inf) -> Estimate:
    """The first value with the interval that the draws after it give."""
    value = float(values[0])
    if blocks < 2:
        return Estimate(value=value, low=None, high=None)
    quantile = float(stdtrit(blocks - 1, (1 + CONFIDENCE) / 2))
    half = quantile * float(np.std(values[1:])) * math.sqrt(blocks / (blocks - 1))
    return Estimate(value=value, low=max(value - half, 0.0), high=min(value + half, most))


def _mean_error(loads: Sequence[Load], predictors: Sequence[str], beta: Matrix) -> float:
    rows = _relative_rows(loads, predictors)
    return float(np.mean(np.abs(rows[:, :-1] @ beta - 1)))


def _error_without(mechanism: str, loads: Sequence[Load], predictors: Sequence[str]) -> float:
    """Mean relative error on a mechanism of the fit to all others."""
    others = [load for load in loads if load.mechanism != mechanism]
    own = [load for load in loads if load.mechanism == mechanism]
    rows = _relative_rows(others, predictors)
    return _mean_error(own, predictors, _solve(rows.T @ rows))


def _collinearity(fit: Matrix, spread: Matrix, names: Sequence[str]) -> Collinearity:
    used = fit[:-1, :-1]
    scale = np.sqrt(np.diag(used))
    if not scale.all():
        return Collinearity(condition=math.inf, together=())
    values = np.linalg.eigvalsh(used / np.outer(scale, scale))
    condition = math.sqrt(values[-1] / values[0]) if values[0] > values[-1] * np.finfo(float).eps else math.inf
    size = np.sqrt(np.diag(spread))
    together = [
        (names[i], names[j], float(spread[i, j] / (size[i] * size[j])))
        for i in range(len(names))
        for j in range(i)
        if size[i] and size[j]
    ]
    return Collinearity(condition=condition, together=tuple(pair for pair in together if abs(pair[2]) >= TOGETHER))
