"""From the uncertainty of single windows to that of joules per token and of ratios: one formula, in logarithms.

A mechanism's energy is the mean of ln E over its n windows (blocks). Three things make it uncertain, each a 95 %
half-width of its own, and they add in quadrature::

    spread   repeats scatter: t_0.975(nu) u from the block model with nu degrees of freedom         (type A)
    window   each window's own, independent: (1/n) sqrt(sum w_i^2), w_i relative                    (type B)
    shared   the sensor's, the same in all windows of a host, so not reduced by n                   (type B)

    U^2 = spread^2 + window^2 + shared^2         interval = E exp(-+ U)

In a ratio of two mechanisms of one host both windows count, and the sensor's gain is the same above and below and
cancels; what is left of the shared part is a constant power, which cancels as far as both draw alike: |o_1 - o_2|,
with o the relative size of that constant. The scatter of repeats contains that of the counter's steps, so the two are
counted partly twice, on the safe side. With one block there is no spread: the interval is the instrument's alone.

Half-widths are added rather than standard uncertainties under one effective t (Welch and Satterthwaite): with the
two or three degrees of freedom of few blocks a spread that is small by chance would also shrink t. On simulated
devices of known energy, three blocks, nominal 95 %, that covers the truth in 92 to 94 % of runs, and this in 96 to
98 % (the general case: Ballico, Metrologia 37 (2000) 61).

Source: JCGM 100:2008 (GUM): 4.2 and 4.3 (types A and B), 5.1.2 equation (10), 6.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def log_half_width(
    *, spread: float | None, windows: Sequence[Sequence[float]] = (), shared: float = 0.0
) -> float | None:
    """Return the half-width of the 95 % interval of ln E, or of ln of a ratio; None where nothing is known.

    Args:
        spread: half-width of the block model's own interval of the same logarithm; None without a spread.
        windows: for one mechanism, or for each of the two in a ratio: relative 95 % half-widths of its windows.
        shared: relative 95 % half-width of what does not cancel of the sensor's error.
    """
    instrument = math.hypot(shared, *(math.hypot(*own) / len(own) for own in windows if own))
    if spread is None:
        return instrument or None
    return math.hypot(spread, instrument)
