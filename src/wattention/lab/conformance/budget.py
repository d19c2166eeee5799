"""How far from the truth a fast path may be: as far as plain arithmetic in the same dtype, times two.

For every quantity the reference runs twice, in float64 (the truth) and in the dtype under test; the distance between
the two, in the Frobenius norm and pooled over seeds, is what rounding alone does to the obvious algorithm. The fast
path may be twice as far from the truth. One floor: any result is stored in the dtype, which alone moves it by up to
half a unit in the last place, so the budget is never below that share of the norm of the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FACTOR = 2.0


@dataclass(frozen=True, kw_only=True)
class Distance:
    """A distance to the truth, and the budget for it, both as shares of the norm of the truth."""

    error: float
    budget: float

    @property
    def within(self) -> bool:
        """Whether the error is in the budget; an error that is not a number is not."""
        return self.error <= self.budget

    def __str__(self) -> str:
        return f"error {self.error:.2e}, budget {self.budget:.2e}"


def distance(triples: Iterable[tuple[Tensor, Tensor, Tensor]], dtype: torch.dtype) -> Distance:
    """Return the pooled distance of (fast, low-precision reference, truth) triples, one a seed."""
    fast, low, norm = _pooled(triples)
    floor = torch.finfo(dtype).eps / 2 * norm
    return Distance(error=fast / (norm or 1.0), budget=max(FACTOR * low, floor) / (norm or 1.0))


def gradient_distances(
    runs: Sequence[tuple[Mapping[str, Tensor], Mapping[str, Tensor], Mapping[str, Tensor]]], dtype: torch.dtype
) -> dict[str, Distance]:
    """Return the distance of each gradient by name, for (fast, low-precision reference, truth) runs, one a seed.

    The gradients of one backward pass share one budget, twice the largest relative rounding among the reference's:
    a small tensor of few numbers is too small a sample of its own rounding, and a fast kernel rounds elsewhere in
    the same chain. A gradient that is zero by cancellation (a key bias) is related to its share of all gradients.
    """
    names = list(runs[0][2])
    pooled = {name: _pooled((fast[name], low[name], truth[name]) for fast, low, truth in runs) for name in names}
    sizes = {name: runs[0][2][name].numel() for name in names}
    whole = math.sqrt(sum(norm**2 for _, _, norm in pooled.values()))
    scale = {name: max(pooled[name][2], whole * math.sqrt(sizes[name] / sum(sizes.values()))) or 1.0 for name in names}
    rounding = max(pooled[name][1] / scale[name] for name in names)
    budget = max(FACTOR * rounding, torch.finfo(dtype).eps / 2)
    return {name: Distance(error=pooled[name][0] / scale[name], budget=budget) for name in names}


def _pooled(triples: Iterable[tuple[Tensor, Tensor, Tensor]]) -> tuple[float, float, float]:
    """Return the norms of (fast - truth, low - truth, truth) over all triples."""
    fast_square = low_square = truth_square = 0.0
    for fast, low, truth in triples:
        exact = truth.double()
        fast_square += float((fast.detach().cpu().double() - exact).square().sum())
        low_square += float((low.double() - exact).square().sum())
        truth_square += float(exact.square().sum())
    return math.sqrt(fast_square), math.sqrt(low_square), math.sqrt(truth_square)
