"""A tile of fast memory, and the only arithmetic there is: in place, on tiles, counted by the ledger.

Rows of a pair tile are queries and columns are keys. ``over`` names the pairs of a masked tile: only those are
computed and counted.
"""

from __future__ import annotations

import numpy as np

from wattention.iocomplexity.memory import streaming
from wattention.iocomplexity.memory.resident import Resident
from wattention.iocomplexity.memory.slow import SlowView
from wattention.iocomplexity.memory.streaming import Product
from wattention.iocomplexity.problem.cuts import PairTile


class Tile(Resident):
    """Words of fast memory that a program computes on; use as a context manager, its room is free at the end."""

    __slots__ = ()

    # --- products -----------------------------------------------------------------------------------------------------

    def add_product(
        self,
        left: Tile | SlowView,
        right: Tile | SlowView,
        *,
        onto: PairTile | None = None,
        over: PairTile | None = None,
        scale: float = 1.0,
        weights: Tile | None = None,
    ) -> None:
        """Add scale * left @ right.

        Args:
            left: (rows, k) tile or streamed operand.
            right: (k, columns) tile or streamed operand.
            onto: the pairs, when this tile is a pair tile.
            over: the pairs, when the left operand is a pair tile or its transpose.
            scale: factor.
            weights: (k, 1) factors of the terms, if both operands are streamed.
        """
        product = Product(left=left, right=right, scale=scale, onto=onto, over=over, weights=weights)
        streaming.add_product(self, product)

    def add_row_dots(self, left: Tile, right: Tile) -> None:
        """Add to this column the dot products of the rows of two tiles."""
        self._changed(left, right)
        self.ledger.multiply_adds += left.size
        if self.values is not None:
            assert left.values is not None
            assert right.values is not None
            self._set(self.values + np.einsum("ij,ij->i", left.values, right.values)[:, None])

    def add_column_sums(self, other: Tile) -> None:
        """Add to this column the sums of the columns of another tile."""
        self._changed(other)
        if self.values is not None:
            assert other.values is not None
            self._set(self.values + other.values.sum(axis=0)[:, None])

    def subtract(self, other: Tile) -> None:
        """Subtract a tile of the same shape."""
        self._changed(other)
        if self.values is not None:
            assert other.values is not None
            self._set(self.values - other.values)

    # --- softmax ------------------------------------------------------------------------------------------------------

    def online_softmax(self, maxima: Tile, sums: Tile, *rescale: Tile, over: PairTile) -> None:
        """Turn scores into exp(S - m) with the running maximum m, and bring m, l and older sums up to date.

        Row by row: m' = max(m, max S), a = exp(m - m'), S <- exp(S - m'), l <- a l + sum S, sums <- a sums; the
        factor a is one word. Source: Milakov and Gimelshein 2018, algorithm 3; FlashAttention-2, algorithm 1.
        """
        self._changed()
        self._overwrites(maxima, sums, *rescale)
        self.ledger.room_for(self.ledger.widths.statistic, "the rescaling factor of one row")
        self.ledger.exponentials += over.pairs
        if self.values is None:
            return
        assert maxima.values is not None
        assert sums.values is not None
        scores = self.values if over.mask is None else np.where(over.mask, self.values, -np.inf)
        new = np.maximum(maxima.values, scores.max(axis=1, keepdims=True))
        factor = np.exp(maxima.values - new)
        scores = np.exp(scores - new)
        sums._set(sums.values * factor + scores.sum(axis=1, keepdims=True))
        maxima._set(new)
        self._set(scores)
        for tile in rescale:
            assert tile.values is not None
            tile._set(tile.values * factor)

    def normalised_softmax(self, maxima: Tile, sums: Tile, decay: Tile, *, over: PairTile) -> None:
        """Turn scores into probabilities of all keys so far, with the factors that older outputs shrink by.

        m' = max(m, max S), a = exp(m - m'), l' = a l + sum exp(S - m'), decay = a l / l', S <- exp(S - m') / l'.
        Source: FlashAttention (Dao et al. 2022), algorithm 1, lines 11 to 13.
        """
        self._changed()
        self._overwrites(maxima, sums, decay)
        self.ledger.exponentials += over.pairs
        if self.values is None:
            return
        assert maxima.values is not None
        assert sums.values is not None
        scores = self.values if over.mask is None else np.where(over.mask, self.values, -np.inf)
        new = np.maximum(maxima.values, scores.max(axis=1, keepdims=True))
        scores, old = np.exp(scores - new), sums.values * np.exp(maxima.values - new)
        total = old + scores.sum(axis=1, keepdims=True)
        maxima._set(new)
        sums._set(total)
        decay._set(old / total)
        self._set(scores / total)

    def log_softmax(self, log_normaliser: Tile, decay: Tile, *, over: PairTile) -> None:
        """The same with one statistic, L = m + log l: L' = log(exp L + sum exp S), S <- exp(S - L').

        The factor that older outputs shrink by is decay = exp(L - L').

        Computed relative to the largest of L and S, so that nothing overflows; one exponential a pair.
        """
        self._changed()
        self._overwrites(log_normaliser, decay)
        self.ledger.exponentials += over.pairs
        if self.values is None:
            return
        old = log_normaliser.values
        assert old is not None
        scores = self.values if over.mask is None else np.where(over.mask, self.values, -np.inf)
        top = np.maximum(old, scores.max(axis=1, keepdims=True))
        scores = np.exp(scores - top)
        total = np.exp(old - top) + scores.sum(axis=1, keepdims=True)
        new = top + np.log(total)
        decay._set(np.exp(old - new))
        log_normaliser._set(new)
        self._set(scores / total)

    def exp_minus(self, shift: Tile, *, over: PairTile) -> None:
        """S <- exp(S - shift of the row); masked pairs become 0."""
        self._changed(shift)
        self.ledger.exponentials += over.pairs
        if self.values is not None:
            assert shift.values is not None
            values = np.exp(self.values - shift.values)
            self._set(values if over.mask is None else np.where(over.mask, values, 0.0))

    def exp_difference(self, other: Tile) -> None:
        """Statistics: x <- exp(x - other)."""
        self._changed(other)
        if self.values is not None:
            assert other.values is not None
            self._set(np.exp(self.values - other.values))

    def rebase(self, maxima: Tile, new: Tile) -> None:
        """Turn sums relative to old maxima into sums relative to new ones: x <- exp(m - m') x, m <- m'."""
        self._changed(maxima, new)
        maxima._changed(new)
        if self.values is not None:
            assert maxima.values is not None
            assert new.values is not None
            self._set(self.values * np.exp(maxima.values - new.values))
            maxima._set(new.values)

    def divide_rows(self, sums: Tile) -> None:
        """O <- O / l; rows that saw no key stay 0."""
        self._changed(sums)
        if self.values is not None:
            assert sums.values is not None
            self._set(self.values / np.where(sums.values == 0, 1.0, sums.values))

    def to_log_normaliser(self, maxima: Tile) -> None:
        """l <- L = m + log l; minus infinity for rows that saw no key."""
        self._changed(maxima)
        if self.values is not None:
            assert maxima.values is not None
            empty = self.values == 0
            self._set(
                np.where(
                    empty, -np.inf, np.where(empty, 0.0, maxima.values) + np.log(np.where(empty, 1.0, self.values))
                )
            )

    def to_score_gradient(
        self,
        probabilities: Tile | SlowView,
        delta: Tile,
        *,
        over: PairTile,
        factors: Tile | None = None,
        scale: float = 1.0,
    ) -> None:
        """dP <- dS = scale * P (dP - D of the row).

        Probabilities that lie in slow memory pass word by word, times a factor of their row where ``factors`` are
        given.
        """
        if isinstance(probabilities, SlowView):
            self._changed(delta)
            streaming.differentiate_softmax(self, probabilities, delta, factors=factors, over=over, scale=scale)
        else:
            self.differentiate_softmax(probabilities, delta, scale)

    def to_features(self) -> None:
        """x <- elu(x) + 1, the feature map of linear attention. Source: Katharopoulos et al. 2020, equation 7."""
        self._changed()
        if self.values is not None:
            self._set(np.where(self.values > 0, self.values + 1.0, np.exp(np.minimum(self.values, 0.0))))
