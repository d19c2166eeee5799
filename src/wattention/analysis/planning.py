"""How small a difference so many blocks can find, and how many blocks a difference needs: power before the fact.

Under a true log-ratio mu and noise sigma within blocks, t = mean / (s / sqrt n) has the noncentral t distribution with
n - 1 degrees of freedom and noncentrality mu sqrt(n) / sigma (Johnson and Welch 1940), so that::

    power to prove a difference   P(|t| > critical value)
    power to prove equality       P(mean -+ critical value x s / sqrt n lies within +- margin)   (Schuirmann 1987)

The critical value is that of one look (t at alpha) or of a run that is looked at after every block
(``analysis/sequential.py``). With m pairs, alpha is 5 % / m, the strictest step of Holm's method: the promise is for
the least favoured pair.

sigma is known only by an estimate with v degrees of freedom, and a plan that takes it at its word keeps its promise
half of the time. So power is averaged over what the estimate leaves open, sigma^2 = s^2 v / chi^2_v (the expected
power, or assurance, of O'Hagan et al. 2005); two blocks then promise little, and say so by asking for many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv, ndtr, stdtrit

from wattention.analysis.blocks import CONFIDENCE
from wattention.analysis.paired import Array
from wattention.analysis.sequential import anytime_critical_t

Rule = Literal["one look", "every block"]
"""How verdicts are reached: a run of a fixed number of blocks, or one that is looked at and extended."""

POWER = 0.8
MOST_BLOCKS = 10_000
"""Where a plan gives up."""
_NODES, _WEIGHTS = (half / 2 for half in np.polynomial.legendre.leggauss(64))
_QUANTILES = 0.5 + _NODES


@dataclass(frozen=True, kw_only=True)
class Design:
    """How a comparison is judged.

    Args:
        rule: looked at once, or after every block.
        comparisons: pairs judged together.
        power: probability with which a plan keeps its promise.
    """

    rule: Rule = "one look"
    comparisons: int = 1
    power: float = POWER

    @property
    def alpha(self) -> float:
        """Error level of one pair, so that the family keeps :data:`~wattention.analysis.blocks.CONFIDENCE`."""
        return (1 - CONFIDENCE) / self.comparisons

    def critical_t(self, blocks: ArrayLike) -> Array:
        """Return the |t| from which on a difference is proved after so many blocks, at least two."""
        if self.rule == "every block":
            return anytime_critical_t(blocks, alpha=self.alpha)
        return np.asarray(stdtrit(np.asarray(blocks, dtype=float) - 1, 1 - self.alpha / 2))


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviation of a pair's log-ratio from block to block.

    Args:
        freedom: degrees of freedom it was estimated with; None where it is known.
    """

    sd: float
    freedom: int | None = None

    def possible(self) -> tuple[Array, Array]:
        """Return values of the true deviation, and their weights."""
        if self.freedom is None:
            return np.array([self.sd]), np.ones(1)
        return self.sd / _relative_deviations(self.freedom), _WEIGHTS


@lru_cache(maxsize=1024)
def _relative_deviations(freedom: int) -> Array:
    """Return s / sigma at the nodes of the quadrature: the square root of chi^2 over its degrees of freedom."""
    return np.asarray(np.sqrt(2 * gammaincinv(freedom / 2, _QUANTILES) / freedom))


def power_to_differ(effect: float, noise: Noise, blocks: int, design: Design) -> float:
    """Return the probability that so many blocks prove a difference of ``effect``, a log-ratio."""
    critical = float(design.critical_t(blocks))
    if not np.isfinite(critical):
        return 0.0
    if noise.sd == 0:
        return float(effect != 0)
    sigma, weights = noise.possible()
    shift = (effect * blocks**0.5 / sigma)[:, None]  # true noise below each other, its estimates side by side
    edge = critical * _relative_deviations(blocks - 1)
    return float(weights @ (ndtr(shift - edge) + ndtr(-shift - edge)) @ _WEIGHTS)


def power_to_equal(effect: float, noise: Noise, blocks: int, design: Design, *, margin: float) -> float:
    """Return the probability that so many blocks prove a log-ratio of ``effect`` to lie within ``margin``."""
    critical = float(design.critical_t(blocks))
    if not np.isfinite(critical):
        return 0.0
    if noise.sd == 0:
        return float(abs(effect) < margin)
    sigma, weights = noise.possible()
    error = (sigma / blocks**0.5)[:, None]
    room = margin - critical * error * _relative_deviations(blocks - 1)
    inside = ndtr((room - effect) / error) - ndtr((-room - effect) / error)
    return float(weights @ np.where(room > 0, inside, 0.0) @ _WEIGHTS)


def detectable_effect(noise: Noise, blocks: int, design: Design) -> float:
    """Return the least log-ratio that so many blocks find with the design's power; infinite where they find none."""
    if blocks < 2 or not np.isfinite(design.critical_t(blocks)):
        return np.inf
    if noise.sd == 0:
        return 0.0
    low, high = 0.0, noise.sd
    while power_to_differ(high, noise, blocks, design) < design.power:
        low, high = high, 2 * high
        if high > 1e6 * noise.sd:
            return np.inf
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power_to_differ(middle, noise, blocks, design) >= design.power else (middle, high)
    return high


def blocks_to_differ(effect: float, noise: Noise, design: Design) -> int | None:
    """Return the least number of blocks that prove ``effect`` with the design's power; None above 10,000."""
    return _least(lambda blocks: power_to_differ(effect, noise, blocks, design) >= design.power)


def blocks_to_equal(effect: float, noise: Noise, design: Design, *, margin: float) -> int | None:
    """Return the least number of blocks that prove equality within ``margin``; None above 10,000, or if it is none."""
    if abs(effect) >= margin:
        return None
    return _least(lambda blocks: power_to_equal(effect, noise, blocks, design, margin=margin) >= design.power)


def _least(enough: Callable[[int], bool]) -> int | None:
    """Return the least number of blocks from 2 on that is enough; more blocks are never worse."""
    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low >= MOST_BLOCKS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MOST_BLOCKS else None
