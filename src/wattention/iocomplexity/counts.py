"""What one run of a schedule costs: the record that the machine counts and that every prediction must equal."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """Traffic, room and arithmetic of one run, for one copy of the problem, in words.

    Statistics (m, l, L, D, tile maxima, and the pass over O and dO that makes D) are part of ``loads`` and ``stores``, and
    are given apart as well, since mappers that know tensors only leave them out.
    """

    loads: int
    """Words read from slow memory."""
    stores: int
    """Words written to slow memory."""
    statistics_loads: int
    """Of the loads, those of statistics."""
    statistics_stores: int
    """Of the stores, those of statistics."""
    peak: int
    """Most words of fast memory in use at once; a prediction gives what the tiles need if no pair is masked."""
    multiply_adds: int
    """Multiply-adds of matrix products, unmasked pairs only."""
    exponentials: int
    """Exponentials of pairs; those of row statistics are not counted."""
    scratch_words: int
    """Most words of slow memory in use at once beside inputs, outputs and what the forward leaves to the backward."""

    @property
    def words(self) -> int:
        """Words moved."""
        return self.loads + self.stores

    @property
    def matrix_words(self) -> int:
        """Words moved without statistics."""
        return self.words - self.statistics_loads - self.statistics_stores

    @property
    def flop(self) -> int:
        """Floating-point operations of the matrix products."""
        return 2 * self.multiply_adds

    def difference(self, other: Count) -> dict[str, tuple[int, int]]:
        """Fields in which two counts differ, with both values; ``peak`` is left out."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.name != "peak"}
        return {name: values for name, values in pairs.items() if values[0] != values[1]}
