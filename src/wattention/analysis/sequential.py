"""A comparison that may be looked at after every block, and stopped at will: an anytime-valid t-test.

Who tests after every block and stops at the first p below 5 % finds a difference between equals sooner or later. The
cure used here needs no plan of looks, no horizon and no memory of earlier looks, so that a run may be stopped,
continued or extended by anybody at any time. For log-ratios d[1..n] with unknown noise, a normal prior of standard
deviation c on the difference in units of the noise, and the invariant prior on the noise, the likelihood ratio against
"no difference" is with t = mean / (s / sqrt n), v = n - 1, k = 1 + n c^2::

    E = k^(-1/2) [ (1 + t^2 / v) / (1 + t^2 / (v k)) ]^(n / 2)                (Rouder et al. 2009, with a fixed scale)

Under "no difference" E is a nonnegative martingale of mean 1, whatever the noise is (Lai 1976; Perez-Ortiz et al. 2024;
Wang and Ramdas 2023), hence by Ville's inequality P(E ever reaches 1 / alpha) <= alpha: 1 / E is a p-value at every
look at once. Solving E < 1 / alpha for the mean gives an interval that covers the truth at all looks together: the
t interval with another critical value. The price is width, about twice that of one look, and that the first two or
three blocks never decide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from wattention.analysis.blocks import CONFIDENCE
from wattention.analysis.paired import Array, summarise, t_statistic

PRIOR_SD = 3.0
"""c: the differences looked for, in units of the noise of one block. The choice moves the critical value a little (2 or
5 instead by a tenth, from six blocks on), and not at all what is guaranteed."""


def anytime_critical_t(blocks: ArrayLike, *, alpha: float) -> Array:
    """Return the |t| from which on a difference is proved after so many blocks; infinite where nothing can be."""
    n = np.asarray(blocks, dtype=float)
    k = 1 + n * PRIOR_SD**2
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        reach = (np.sqrt(k) / alpha) ** (2 / n)
        square = (n - 1) * (reach - 1) / (1 - reach / k)
    return np.asarray(np.sqrt(np.where((n >= 2) & (reach < k), square, np.inf)))


def anytime_p_value(log_ratios: ArrayLike) -> Array:
    """Return a p-value of no difference that holds at every look, (..., blocks) to (...)."""
    mean, sd, n = summarise(log_ratios)
    if n < 2:
        return np.ones(mean.shape)
    k, per_freedom = 1 + n * PRIOR_SD**2, t_statistic(mean, sd, n) ** 2 / (n - 1)
    # (1 + x) / (1 + x / k), written so that an infinite x gives k
    growth = k - (k - 1) / (1 + per_freedom / k)
    return np.asarray(np.minimum(1.0, np.exp(0.5 * np.log(k) - 0.5 * n * np.log(growth))))


def anytime_interval(log_ratios: ArrayLike, *, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Return low and high of the mean log-ratio, which hold at every look at once, (..., blocks) to (...).

    Infinite where so few blocks prove nothing; NaN for a single block.
    """
    mean, sd, n = summarise(log_ratios)
    if n < 2:
        return np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    critical = anytime_critical_t(n, alpha=1 - confidence)
    half = np.full(mean.shape, np.inf) if np.isinf(critical) else critical * sd / n**0.5
    return mean - half, mean + half
