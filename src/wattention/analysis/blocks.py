"""Statistics of a randomised complete block design, on a log scale, so that every comparison is a ratio.

The additive model of such a design (Fisher 1935; any text on analysis of variance)::

    ln y[block, mechanism] = mu + block effect + mechanism effect + noise

is fitted by least squares. Noise is pooled over all mechanisms: with b blocks and k mechanisms it has (b - 1)(k - 1)
degrees of freedom, so that two blocks of eight mechanisms already decide differences of a few per cent, where eight
separate paired t-tests with one degree of freedom each would decide nothing. The price is the assumption that all
mechanisms are about equally noisy (``analysis/paired.py`` does without it, and needs more blocks). p-values are
corrected over mechanisms by Holm's method (Holm 1979).

The fit eliminates the block effects first, which leaves one small system in the mechanisms: O(b k^2) for b blocks, and
cells may be missing. Mechanisms that no chain of common blocks connects are fitted apart, and never compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95
ROUNDING = 1e-9
"""Differences of logarithms below this are rounding of the fit, neither noise nor effect."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its two-sided interval at :data:`CONFIDENCE`; low and high are None where there is no spread."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One mechanism against another: the ratio, its interval, and whether the difference is decided.

    ``p_holm`` is the p-value after Holm's correction over the family of comparisons it was made in.
    """

    value: float
    low: float | None
    high: float | None
    p_holm: float | None

    @property
    def tie(self) -> bool:
        """No difference is proved at the family's level: printed as a tie."""
        return self.p_holm is None or self.p_holm >= 1 - CONFIDENCE


@dataclass(frozen=True)
class BlockModel:
    """The additive model fitted to one positive quantity, observed once per block and mechanism.

    Build it with :func:`fit_blocks`.
    """

    labels: tuple[str, ...]
    _log_means: np.ndarray
    _covariance: np.ndarray
    """Of the mechanism effects at the mean block, in units of the noise variance."""
    noise_sd: float
    """Standard deviation of the noise in ln y; about the relative noise of one cell."""
    degrees_of_freedom: int
    _components: tuple[int, ...]
    """By mechanism, which connected part of the design it belongs to."""

    def mean(self, label: str) -> Estimate:
        """Geometric mean over the blocks, with the interval that the noise within blocks leaves."""
        i = self.labels.index(label)
        return self._estimate(float(self._log_means[i]), float(self._covariance[i, i]))

    def ratios_to(self, reference: str) -> dict[str, Ratio]:
        """Ratio of every other mechanism to the reference, one family under Holm's correction.

        A mechanism that no chain of common blocks connects with the reference has a ratio of means without interval.
        """
        contrasts = {label: self.contrast(label, reference) for label in self.labels if label != reference}
        family = [label for label in contrasts if self._comparable(label, reference)]
        adjusted = dict(zip(family, holm([contrasts[label][1] for label in family]), strict=True))
        return {
            label: Ratio(value=e.value, low=e.low, high=e.high, p_holm=adjusted.get(label))
            for label, (e, _) in contrasts.items()
        }

    def contrast(self, label: str, reference: str) -> tuple[Estimate, float]:
        """Ratio of one mechanism to another with its interval, and the p-value of no difference, not corrected."""
        i, r = self.labels.index(label), self.labels.index(reference)
        log_ratio = float(self._log_means[i] - self._log_means[r])
        if not self._comparable(label, reference):
            return Estimate(value=float(np.exp(log_ratio)), low=None, high=None), 1.0
        variance = float(self._covariance[i, i] + self._covariance[r, r] - 2 * self._covariance[i, r])
        return self._estimate(log_ratio, variance), self._p_value(log_ratio, variance)

    def _comparable(self, label: str, reference: str) -> bool:
        """Whether there is noise to judge by, and a chain of common blocks."""
        i, r = self.labels.index(label), self.labels.index(reference)
        return self.degrees_of_freedom > 0 and self._components[i] == self._components[r]

    def _estimate(self, log_value: float, variance: float) -> Estimate:
        if not self.degrees_of_freedom:
            return Estimate(value=float(np.exp(log_value)), low=None, high=None)
        half = float(stdtrit(self.degrees_of_freedom, (1 + CONFIDENCE) / 2)) * self.noise_sd * variance**0.5
        return Estimate(
            value=float(np.exp(log_value)), low=float(np.exp(log_value - half)), high=float(np.exp(log_value + half))
        )

    def _p_value(self, log_ratio: float, variance: float) -> float:
        scale = self.noise_sd * variance**0.5
        if scale == 0:
            return 1.0 if abs(log_ratio) < ROUNDING else 0.0
        return float(2 * stdtr(self.degrees_of_freedom, -abs(log_ratio) / scale))


def fit_blocks(values: Mapping[str, Mapping[int, float]]) -> BlockModel:
    """Fit the additive model.

    Args:
        values: by mechanism, by block: one positive number. Cells may be missing (a failure is no number); a mechanism
            without any is left out.
    """
    labels = tuple(label for label, by_block in values.items() if by_block)
    assert labels, "no values at all"
    column = {block: j for j, block in enumerate(sorted({block for label in labels for block in values[label]}))}
    log_values = np.full((len(labels), len(column)), np.nan)
    for i, label in enumerate(labels):
        for block, value in values[label].items():
            assert value > 0, f"{label} block {block}: {value} is not positive"
            log_values[i, column[block]] = np.log(value)
    there = ~np.isnan(log_values)
    components = _components(there)
    log_means, covariance = np.zeros(len(labels)), np.zeros((len(labels), len(labels)))
    squares = 0.0
    for component in set(components):
        ours = [i for i, one in enumerate(components) if one == component]
        part = log_values[ours][:, there[ours].any(axis=0)]
        log_means[ours], covariance[np.ix_(ours, ours)], residual = _fit_connected(part)
        squares += residual
    freedom = int(there.sum()) - len(labels) - len(column) + len(set(components))
    noise = float(np.sqrt(squares / freedom)) if freedom else 0.0
    noise = 0.0 if noise < ROUNDING else noise
    return BlockModel(labels, log_means, covariance, noise, freedom, components)


def _components(there: np.ndarray) -> tuple[int, ...]:
    """Number the mechanisms by the connected part of the design they belong to: (k, b) booleans to k numbers."""
    counts = there.astype(float)
    reach = (counts @ counts.T) > 0
    for _ in range(int(np.ceil(np.log2(len(there)))) if len(there) > 1 else 0):
        reach = (reach.astype(float) @ reach) > 0  # chains of twice the length
    return tuple(int(row.argmax()) for row in reach)


def _fit_connected(log_values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit one connected part, (k, b) with NaN for missing cells.

    With N the incidence matrix, D_m and D_b the numbers of cells by mechanism and by block, and block effects that sum
    to zero, the normal equations are::

        D_m mu + N beta = sums by mechanism        N' mu + (D_b + 1 1') beta = sums by block

    Returns the mechanisms' levels at the mean block, their covariance in units of the noise, the sum of squares left.
    """
    there = ~np.isnan(log_values)
    incidence, y = there.astype(float), np.where(there, log_values, 0.0)
    inverse = 1 / incidence.sum(axis=0)
    total = 1 + inverse.sum()

    def block_solve(right: np.ndarray) -> np.ndarray:
        """(D_b + 1 1')^-1 right, by Sherman and Morrison."""
        scaled: np.ndarray = (inverse * right.T).T
        return np.asarray(scaled - np.multiply.outer(inverse, scaled.sum(axis=0)) / total)

    schur = np.diag(incidence.sum(axis=1)) - incidence @ block_solve(incidence.T)
    schur_inverse = np.linalg.inv(schur)
    levels = schur_inverse @ (y.sum(axis=1) - incidence @ block_solve(y.sum(axis=0)))
    effects = block_solve(y.sum(axis=0) - incidence.T @ levels)
    residuals = np.where(there, y - levels[:, None] - effects[None, :], 0.0)
    # the constraint is no datum: what it added to the inverse is taken off again
    covariance = schur_inverse - 1 / log_values.shape[1] ** 2
    return levels, covariance, float((residuals**2).sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p-values, in the given order."""
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, running)
    return adjusted
