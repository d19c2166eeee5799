"""Batches that every mechanism and every resumed run sees alike.

A training batch is a function of (seed, index): windows at random offsets, drawn with replacement. Held-out batches
are fixed: windows that do not overlap, spread evenly over the held-out tokens. Validation batches, by which a learning
rate is chosen, are windows of the held-out tokens that lie between those: none is in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.data.tokens import TokenData, check_ids


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs (B, T) and targets (B, T), int64; a target equal to ``IGNORE`` has no loss."""

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    target_bytes: int | None = None
    """Bytes of text the targets stand for; counted in held-out batches, None where that is not known."""


class Batches(Protocol):
    """What a trainer reads."""

    @property
    def vocabulary(self) -> int:
        """Every id is below it."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the tokens come from; equal for equal data."""

    def train(self, index: int) -> Batch:
        """Return the training batch of one index, always the same."""

    def heldout(self) -> Iterator[Batch]:
        """Yield the held-out batches, always the same."""

    def validation(self) -> Iterator[Batch]:
        """Yield the validation batches, always the same, apart from training and held-out ones; none where too little
        text is left for them."""


class TextBatches:
    """Windows of ``tokens`` tokens, ``batch`` at a time.

    Args:
        data: the tokens.
        batch: windows of one batch, B.
        tokens: tokens of one window, T.
        seed: seed of the training offsets.
        heldout_tokens: tokens of all held-out batches together; rounded down to whole batches, at least one window.

    Errors: ``UserError`` when either part is shorter than it must be.
    """

    def __init__(self, data: TokenData, *, batch: int, tokens: int, seed: int, heldout_tokens: int) -> None:
        self.data, self.batch, self.tokens, self.seed = data, batch, tokens, seed
        self._need("training", len(data.train), batch * tokens + 1)
        self._need("held-out", len(data.heldout), tokens + 1)
        windows = max(1, min(heldout_tokens, len(data.heldout) - 1) // tokens)
        self.heldout_windows = windows // batch * batch or windows

    @property
    def vocabulary(self) -> int:
        """The data's vocabulary."""
        return self.data.vocabulary

    @property
    def provenance(self) -> dict[str, Any]:
        """The data's provenance, and the tokens that one evaluation covers."""
        return {**self.data.provenance, "evaluated_tokens": self.heldout_windows * self.tokens}

    def train(self, index: int) -> Batch:
        """Return the training batch of one index."""
        draw = np.random.default_rng([self.seed, index])
        starts = draw.integers(len(self.data.train) - self.tokens, size=self.batch)
        return self._windows(self.data.train, starts)

    def heldout(self) -> Iterator[Batch]:
        """Yield the held-out batches."""
        yield from self._evaluated(self._heldout_places())

    def validation(self) -> Iterator[Batch]:
        """Yield the validation batches: as many windows as are held out, or none where fewer are left."""
        left = np.setdiff1d(np.arange((len(self.data.heldout) - 1) // self.tokens), self._heldout_places())
        windows = self.heldout_windows
        if len(left) >= windows:
            yield from self._evaluated(left[np.arange(windows) * len(left) // windows])

    def _heldout_places(self) -> NDArray[np.int64]:
        room = (len(self.data.heldout) - 1) // self.tokens
        return np.arange(self.heldout_windows) * room // self.heldout_windows

    def _evaluated(self, places: NDArray[np.int64]) -> Iterator[Batch]:
        """Yield windows at these places of the held-out tokens, with the bytes they stand for."""
        starts = places * self.tokens
        for first in range(0, len(starts), self.batch):
            batch = self._windows(self.data.heldout, starts[first : first + self.batch])
            table = self.data.token_bytes
            known = None if table is None else int(table[batch.targets].sum(dtype=np.int64))
            yield Batch(inputs=batch.inputs, targets=batch.targets, target_bytes=known)

    def _windows(self, tokens: NDArray[Any], starts: NDArray[np.int64]) -> Batch:
        windows = np.stack([tokens[s : s + self.tokens + 1] for s in starts]).astype(np.int64)
        if self.data.token_bytes is None:  # a file of ids is checked on opening only in part
            check_ids(windows, self.vocabulary, self.data.provenance["source"])
        return Batch(inputs=windows[:, :-1], targets=windows[:, 1:])

    def _need(self, part: str, have: int, need: int) -> None:
        if have < need:
            raise UserError(
                f"the {part} text is too short",
                got=f"{have} tokens",
                wanted=f"at least {need} tokens, for {self.batch} x {self.tokens}",
                do="give more text, shorter sequences, or a smaller batch",
            )
