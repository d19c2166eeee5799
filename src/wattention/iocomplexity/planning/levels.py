"""A device as a chain of two-level problems: one plan a boundary, and where the small-cache regime begins.

At each level of the hierarchy the level itself is fast memory and everything outside is slow; a schedule chosen for one
boundary says nothing about the next, so each is planned for itself. With x = d / sqrt M the leading terms give the
thresholds, in words a pair: forward 4 x^2 (FlashAttention-2's order) against 2 x^2 + 2 (small-cache), equal at M = d^2;
backward 14 x^2 (two passes) against 9 x^2 + 2 (dS stored), equal at 2.5 d^2, and that against 5 x^2 + 5 (all pair
matrices stored), equal at 4/3 d^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wattention.core.errors import UserError
from wattention.hardware.profile import HardwareProfile, MemoryLevel
from wattention.iocomplexity.bounds.base import Direction
from wattention.iocomplexity.planning.planner import Plan, plan
from wattention.iocomplexity.problem.attention import Problem

STORED_GRADIENT_SQUARES = 2.5
"""M / d^2 at which the two-pass backward meets the one that stores dS (docs/theory/backward.md)."""
SMALL_BACKWARD_SQUARES = 4 / 3
"""M / d^2 at which the backward that stores dS only meets the one that stores P too."""


@dataclass(frozen=True, kw_only=True)
class LevelPlan:
    """The plan whose fast memory is one level of a device; ``plan`` is None where nothing fits, ``reason`` says why."""

    level: MemoryLevel
    fast_words: int
    plan: Plan | None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Head dimensions above which the small-cache regime begins in one level of one device."""

    device: str
    level: MemoryLevel
    fast_words: int

    @property
    def forward_head_dim(self) -> int:
        """The small-cache forward moves fewest words above this head dimension."""
        return math.isqrt(self.fast_words)

    @property
    def stored_gradient_head_dim(self) -> int:
        """A backward that stores dS moves fewest words above this head dimension."""
        return math.floor(math.sqrt(self.fast_words / STORED_GRADIENT_SQUARES))

    @property
    def backward_head_dim(self) -> int:
        """The small-cache backward, which stores P and dS, moves fewest words above this head dimension."""
        return math.floor(math.sqrt(self.fast_words / SMALL_BACKWARD_SQUARES))


def plan_levels(
    profile: HardwareProfile, problem: Problem, *, direction: Direction, word_bytes: int
) -> tuple[LevelPlan, ...]:
    """Plan every boundary of a device: registers, shared memory, caches, main memory.

    Args:
        profile: the device.
        problem: the problem.
        direction: forward or backward pass.
        word_bytes: bytes of one word.
    """
    plans = []
    for level in profile.fast_levels:
        words = level.words(word_bytes)
        try:
            found, reason = plan(problem, words, direction=direction), None
        except UserError as error:
            found, reason = None, error.what
        plans.append(LevelPlan(level=level, fast_words=words, plan=found, reason=reason))
    return tuple(plans)


def thresholds(profile: HardwareProfile, name: str, *, word_bytes: int, share: float = 1.0) -> tuple[Threshold, ...]:
    """Where the small-cache regime begins, for each fast level of a device.

    Args:
        profile: the device.
        name: its name in the catalog.
        word_bytes: bytes of one word.
        share: the part of a level that one copy of the working set may use (0.5 when double-buffered).

    Raises:
        UserError: a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise UserError("share of fast memory", got=share, wanted="more than 0 and at most 1")
    return tuple(
        Threshold(device=name, level=level, fast_words=int(level.capacity_bytes * share) // word_bytes)
        for level in profile.fast_levels
    )
