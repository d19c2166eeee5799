"""Locality-sensitive hashing by random rotations: vectors that point the same way fall into the same bucket.

bucket(x) = argmax([x R; −x R]) for a random Gaussian R (D, N / 2): the nearest of N random directions and their
opposites (Andoni et al. 2015, arXiv 1509.02897; Kitaev et al. 2020, arXiv 2001.04451, section 2). Only the direction
of x matters. Cost: T D N multiply-adds a round, no more than a projection while N <= 2 D.
"""

from __future__ import annotations

import torch
from torch import Tensor


def random_rotations(rounds: int, features: int, buckets: int, seed: int) -> Tensor:
    """Draw R for every round, (rounds, D, N / 2) float32, the same on every device for one seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rounds, features, buckets // 2, generator=generator)


def bucket_ids(x: Tensor, rotations: Tensor) -> Tensor:
    """Hash vectors in float32: x (..., T, D), rotations (rounds, D, N / 2) -> (..., rounds, T) int64 in [0, N).

    The decision is part of the definition, not of its precision: it is made in float32 whatever the dtype of x, so
    that a run in another precision differs by rounding and not by other buckets.
    """
    with torch.autocast(x.device.type, enabled=False):
        rounds, D, directions = rotations.shape
        projected = x.detach().float() @ rotations.float().transpose(0, 1).reshape(D, rounds * directions)
        projected = projected.view(*x.shape[:-1], rounds, directions)
        nearest = projected.abs().argmax(dim=-1, keepdim=True)
        opposite = projected.gather(-1, nearest) < 0
        ids: Tensor = nearest + opposite * directions
        return ids.squeeze(-1).mT
