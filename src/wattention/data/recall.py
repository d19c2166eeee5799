"""Multi-query associative recall: what a mechanism forgets (Arora et al., 2023, "Zoology", section 3).

A sequence lists P pairs of a key and a value, then asks for every key again, in random order and at random distances;
after each asked key the model must give its value. Keys and values are disjoint halves of the vocabulary, id 0 fills
the gaps, and only the positions of the questions have a loss::

    k3 v7 k1 v2 | 0 k1 0 0 k3 0      targets: . . . . | . v2 . . v7 .

Questions cluster near the pairs: gaps follow a power law, p(g) ~ g^(a - 1) with a = 0.01, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.core.specs import IGNORE
from wattention.data.batches import Batch

POWER = 0.01
"""Exponent a of the gaps' power law (Arora et al., 2023, appendix E)."""


class RecallBatches:
    """Recall sequences: ``batch`` of ``tokens`` tokens.

    Args:
        vocabulary: ids of the model; one fills gaps, half of the rest are keys and half values.
        batch: sequences of one batch.
        tokens: length of a sequence.
        pairs: key-value pairs of one sequence.
        seed: seed of all sequences; training and held-out ones never share a random stream.
        heldout_tokens: tokens of all held-out batches together; rounded down to whole batches, at least one batch.

    Errors: ``UserError`` when the pairs and their questions do not fit the sequence or the vocabulary.
    """

    def __init__(self, *, vocabulary: int, batch: int, tokens: int, pairs: int, seed: int, heldout_tokens: int) -> None:
        self.vocabulary, self.batch, self.tokens, self.pairs, self.seed = vocabulary, batch, tokens, pairs, seed
        self.keys = (vocabulary - 1) // 2
        if pairs > self.keys or 3 * pairs > tokens:
            most = min(self.keys, tokens // 3)
            raise UserError(
                "the recall task does not fit",
                got=f"{pairs} pairs in {tokens} tokens with {self.keys} keys",
                wanted=f"at most {most} pairs: each takes 3 tokens and a key of its own",
                do=f"set recall_pairs to {most} or less, or lengthen the sequence or the vocabulary",
            )
        self.heldout_batches = max(1, heldout_tokens // (batch * tokens))

    @property
    def provenance(self) -> dict[str, Any]:
        """What generates the sequences."""
        return {
            "source": "multi-query associative recall, generated",
            "pairs": self.pairs,
            "keys": self.keys,
            "power": POWER,
            "seed": self.seed,
            "evaluated_tokens": self.heldout_batches * self.batch * self.tokens,
        }

    def train(self, index: int) -> Batch:
        """Return the training batch of one index."""
        return self._batch(np.random.default_rng([self.seed, 0, index]))

    def heldout(self) -> Iterator[Batch]:
        """Yield the held-out batches."""
        for index in range(self.heldout_batches):
            yield self._batch(np.random.default_rng([self.seed, 1, index]))

    def validation(self) -> Iterator[Batch]:
        """Yield the validation batches, as many as are held out."""
        for index in range(self.heldout_batches):
            yield self._batch(np.random.default_rng([self.seed, 2, index]))

    def _batch(self, draw: np.random.Generator) -> Batch:
        B, T, P = self.batch, self.tokens, self.pairs
        keys = _distinct(draw, B, self.keys, P) + 1
        values = draw.integers(self.keys, size=(B, P)) + 1 + self.keys
        inputs = np.zeros((B, T), np.int64)
        targets = np.full((B, T), IGNORE, np.int64)
        inputs[:, 0 : 2 * P : 2] = keys
        inputs[:, 1 : 2 * P : 2] = values
        weights = np.arange(1, T - 2 * P + 1) ** (POWER - 1.0)
        asked = 2 * P + _weighted(draw, B, weights, P)
        np.put_along_axis(inputs, asked, keys, axis=1)
        np.put_along_axis(targets, asked, values, axis=1)
        return Batch(inputs=inputs, targets=targets)


def _distinct(draw: np.random.Generator, rows: int, of: int, count: int) -> NDArray[np.int64]:
    """Draw ``count`` distinct numbers below ``of`` in each row, in random order."""
    return draw.random((rows, of)).argsort(axis=1)[:, :count]


def _weighted(draw: np.random.Generator, rows: int, weights: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Draw ``count`` distinct indices in each row, one after another with probability ~ weight (Gumbel top-k)."""
    scores = np.log(weights) + draw.gumbel(size=(rows, len(weights)))
    return np.argsort(-scores, axis=1)[:, :count]
