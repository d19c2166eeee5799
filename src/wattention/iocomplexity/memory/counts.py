"""What one run of a schedule costs: the record that the machine counts and that every prediction must equal."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """Traffic, room and arithmetic of one run, for one copy of the problem, in words.

    Statistics (m, l, L, D, tile maxima, and the pass over O and dO that makes D) are part of ``loads`` and
    ``stores``, and are given apart as well, since mappers that know tensors only leave them out.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one phase of a schedule costs; phases run one after another, so traffic adds and room is the largest."""

    loads: int = 0
    stores: int = 0
    statistics_loads: int = 0
    statistics_stores: int = 0
    peak: int = 0
    multiply_adds: int = 0
    exponentials: int = 0


def joined(*parts: Part, scratch_words: int = 0) -> Count:
    """The count of a schedule made of phases."""
    return Count(
        loads=sum(p.loads for p in parts),
        stores=sum(p.stores for p in parts),
        statistics_loads=sum(p.statistics_loads for p in parts),
        statistics_stores=sum(p.statistics_stores for p in parts),
        peak=max(p.peak for p in parts),
        multiply_adds=sum(p.multiply_adds for p in parts),
        exponentials=sum(p.exponentials for p in parts),
        scratch_words=scratch_words,
    )
