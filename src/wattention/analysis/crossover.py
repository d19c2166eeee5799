"""From which sequence length on is one mechanism cheaper than another: the question that a single length hides.

Between two measured lengths a cost grows about as a power of the length, so the crossing is interpolated on log axes.
A crossing is reported only when the mechanism stays cheaper at every longer length measured, and a length at which the
difference is not decided counts as no gain.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Where ``ours`` becomes cheaper than ``theirs`` for good.

    Args:
        kind: ``always`` from the shortest measured length, ``from`` an interpolated length, ``never`` up to the longest
            measured one, ``tie`` where the difference at the longest is not decided, ``unknown`` where fewer than two
            lengths were measured for both.
        length_tokens: the interpolated crossing for ``from``; the shortest measured length for ``always``; the longest
            for ``never`` and ``tie``; 0 for ``unknown``.
        ratio_at_longest: ours / theirs at the longest length both were measured at; NaN for ``unknown``.
    """

    kind: Literal["always", "from", "never", "tie", "unknown"]
    length_tokens: float
    ratio_at_longest: float


def find_crossover(
    ours: Mapping[int, float], theirs: Mapping[int, float], undecided: Collection[int] = ()
) -> Crossover:
    """Find the length from which ``ours`` costs less than ``theirs``; both map length to a positive cost.

    Args:
        undecided: lengths at which no difference between the two is proved.
    """
    lengths = sorted(ours.keys() & theirs.keys())
    if len(lengths) < 2:
        return Crossover(kind="unknown", length_tokens=0.0, ratio_at_longest=math.nan)
    log_ratio = {t: math.log(ours[t] / theirs[t]) for t in lengths}
    longest_ratio = math.exp(log_ratio[lengths[-1]])
    if lengths[-1] in undecided:
        return Crossover(kind="tie", length_tokens=lengths[-1], ratio_at_longest=longest_ratio)
    log_ratio.update(dict.fromkeys(set(lengths) & set(undecided), 0.0))
    if log_ratio[lengths[-1]] >= 0:
        return Crossover(kind="never", length_tokens=lengths[-1], ratio_at_longest=longest_ratio)
    dearer = [t for t in lengths if log_ratio[t] >= 0]
    if not dearer:
        return Crossover(kind="always", length_tokens=lengths[0], ratio_at_longest=longest_ratio)
    before, after = dearer[-1], lengths[lengths.index(dearer[-1]) + 1]
    share = log_ratio[before] / (log_ratio[before] - log_ratio[after])
    crossing = before * (after / before) ** share  # before itself, to the bit, where nothing is decided there
    return Crossover(kind="from", length_tokens=crossing, ratio_at_longest=longest_ratio)
