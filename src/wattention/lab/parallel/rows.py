"""Every rank reads the same batches and takes its own rows of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from wattention.core.errors import UserError
from wattention.core.specs import IGNORE
from wattention.data.batches import Batch, Batches


class BatchRows:
    """One rank's rows of every batch of others: equal parts in training; in evaluation as even as the rows allow.

    Args:
        batches: the batches of all ranks together.
        rank, size: which part of how many.
    """

    def __init__(self, batches: Batches, *, rank: int, size: int) -> None:
        self._batches, self._rank, self._size = batches, rank, size

    @property
    def vocabulary(self) -> int:
        """Every id is below it."""
        return self._batches.vocabulary

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the tokens come from."""
        return self._batches.provenance

    def train(self, index: int) -> Batch:
        """Return this rank's rows of one training batch.

        Raises:
            UserError: the rows cannot be divided equally.
        """
        batch = self._batches.train(index)
        rows = len(batch.inputs)
        if rows % self._size:
            raise uneven_batch(rows, self._size)
        mine = np.arange(rows).reshape(self._size, -1)[self._rank]
        return Batch(inputs=batch.inputs[mine], targets=batch.targets[mine])

    def validation(self) -> Iterator[Batch]:
        """Refuse: a search for a learning rate runs in one process.

        Raises:
            UserError: always.
        """
        raise UserError("validation windows are read by one process", got=f"{self._size} ranks")

    def heldout(self) -> Iterator[Batch]:
        """Yield this rank's rows of the held-out batches; the targets' bytes are counted at rank 0.

        A rank without a row gets one whose targets have no loss: all ranks must run as many forward passes.
        """
        for batch in self._batches.heldout():
            mine = np.array_split(np.arange(len(batch.inputs)), self._size)[self._rank]
            known = batch.target_bytes if self._rank == 0 or batch.target_bytes is None else 0
            if len(mine):
                yield Batch(inputs=batch.inputs[mine], targets=batch.targets[mine], target_bytes=known)
            else:
                nothing = np.full_like(batch.targets[:1], IGNORE)
                yield Batch(inputs=batch.inputs[:1], targets=nothing, target_bytes=known)


def uneven_batch(batch: int, ranks: int) -> UserError:
    """Return the error for a batch that the ranks cannot share equally."""
    return UserError(
        "the batch cannot be shared equally",
        got=f"{batch} sequences over {ranks} ranks",
        wanted=f"a multiple of {ranks}",
        do=f"set --batch to {-(-batch // ranks) * ranks}",
    )
