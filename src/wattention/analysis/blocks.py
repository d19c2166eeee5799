"""Statistics of a randomised complete block design, on a log scale, so that every comparison is a ratio.

The additive model of such a design (Fisher 1935; any text on analysis of variance)::

    ln y[block, mechanism] = mu + block effect + mechanism effect + noise

is fitted by least squares. Noise is pooled over all mechanisms: with b blocks and k mechanisms it has (b - 1)(k - 1)
degrees of freedom, so that two blocks of eight mechanisms already decide differences of a few per cent, where eight
separate paired t-tests with one degree of freedom each would decide nothing. The price is the assumption that all
mechanisms are about equally noisy. p-values are corrected over mechanisms by Holm's method (Holm 1979).
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

    def mean(self, label: str) -> Estimate:
        """Geometric mean over the blocks, with the interval that the noise within blocks leaves."""
        i = self.labels.index(label)
        return self._estimate(float(self._log_means[i]), float(self._covariance[i, i]))

    def ratios_to(self, reference: str) -> dict[str, Ratio]:
        """Ratio of every other mechanism to the reference, one family under Holm's correction."""
        r = self.labels.index(reference)
        others = [label for label in self.labels if label != reference]
        estimates: list[Estimate] = []
        p_values: list[float] = []
        for label in others:
            i = self.labels.index(label)
            log_ratio = float(self._log_means[i] - self._log_means[r])
            variance = float(self._covariance[i, i] + self._covariance[r, r] - 2 * self._covariance[i, r])
            estimates.append(self._estimate(log_ratio, variance))
            p_values.append(self._p_value(log_ratio, variance))
        adjusted: Sequence[float | None] = holm(p_values) if self.degrees_of_freedom else [None] * len(others)
        return {
            label: Ratio(value=e.value, low=e.low, high=e.high, p_holm=p)
            for label, e, p in zip(others, estimates, adjusted, strict=True)
        }

    def contrast(self, label: str, reference: str) -> tuple[Estimate, float]:
        """Ratio of one mechanism to another with its interval, and the p-value of no difference, not corrected."""
        i, r = self.labels.index(label), self.labels.index(reference)
        log_ratio = float(self._log_means[i] - self._log_means[r])
        variance = float(self._covariance[i, i] + self._covariance[r, r] - 2 * self._covariance[i, r])
        return self._estimate(log_ratio, variance), self._p_value(log_ratio, variance)

    def _estimate(self, log_value: float, variance: float) -> Estimate:
        if not self.degrees_of_freedom:
            return Estimate(value=float(np.exp(log_value)), low=None, high=None)
        half = float(stdtrit(self.degrees_of_freedom, (1 + CONFIDENCE) / 2)) * self.noise_sd * variance**0.5
        return Estimate(
            value=float(np.exp(log_value)), low=float(np.exp(log_value - half)), high=float(np.exp(log_value + half))
        )

    def _p_value(self, log_ratio: float, variance: float) -> float:
        scale = self.noise_sd * variance**0.5
        if not self.degrees_of_freedom or scale == 0:
            return 1.0 if abs(log_ratio) < ROUNDING or not self.degrees_of_freedom else 0.0
        return float(2 * stdtr(self.degrees_of_freedom, -abs(log_ratio) / scale))


def fit_blocks(values: Mapping[str, Mapping[int, float]]) -> BlockModel:
    """Fit the additive model.

    Args:
        values: by mechanism, by block: one positive number. Cells may be missing (a failure is no number); a mechanism
            without any is left out.
    """
    labels = tuple(label for label, by_block in values.items() if by_block)
    assert labels, "no values at all"
    blocks = sorted({block for label in labels for block in values[label]})
    rows, y = [], []
    for i, label in enumerate(labels):
        for block, value in values[label].items():
            assert value > 0, f"{label} block {block}: {value} is not positive"
            row = np.zeros(len(labels) + len(blocks))
            row[i] = 1.0
            row[len(labels) + blocks.index(block)] = 1.0
            rows.append(row)
            y.append(np.log(value))
    design, log_values = np.array(rows), np.array(y)
    # block effects sum to zero, so that a mechanism's effect is its level at the mean block
    centring = np.concatenate([np.zeros(len(labels)), np.ones(len(blocks))])
    gram = design.T @ design
    gram_inverse = np.linalg.pinv(gram + np.outer(centring, centring), hermitian=True)
    coefficients = gram_inverse @ design.T @ log_values
    residuals = log_values - design @ coefficients
    freedom = max(0, len(y) - int(np.linalg.matrix_rank(gram, hermitian=True)))
    noise = float(np.sqrt(residuals @ residuals / freedom)) if freedom else 0.0
    noise = 0.0 if noise < ROUNDING else noise
    k = len(labels)
    hat = gram_inverse @ design.T
    covariance = (hat @ hat.T)[:k, :k]
    return BlockModel(labels, coefficients[:k], covariance, noise, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction of a family of p-values, in the given order."""
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, running)
    return adjusted
