"""Caches with least-recently-used replacement and write-back, fed with an address trace.

A line that is written is fetched first (write-allocate) and written back when it leaves. Dirty lines that are still
there at
the end are counted apart: they must be written one day, and an ideal schedule has paid for them.
Source: Sleator and Tarjan 1985 for LRU against the ideal (twice the misses at twice the size, roughly).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.iocomplexity.execution.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Cache:
    """One level: ``ways`` of None is fully associative."""

    size_bytes: int
    line_bytes: int
    ways: int | None = None

    def __post_init__(self) -> None:
        if self.line_bytes < 1 or self.size_bytes < self.line_bytes:
            raise UserError(
                "a cache holds at least one line",
                got=f"{self.size_bytes} bytes in lines of {self.line_bytes}",
                wanted="a size of at least one line",
            )
        if self.ways is not None and (self.ways < 1 or self.lines % self.ways):
            raise UserError(
                "the ways of a cache divide its lines",
                got=f"{self.lines} lines, {self.ways} ways",
                wanted="lines that are a multiple of the ways",
            )

    @property
    def lines(self) -> int:
        """Lines it holds."""
        return self.size_bytes // self.line_bytes


@dataclass(frozen=True, kw_only=True)
class CacheCount:
    """What one level has seen."""

    accesses: int
    misses: int
    write_backs: int
    """Dirty lines that left."""
    dirty_at_end: int
    """Dirty lines that remain, and have to be written one day."""
    line_bytes: int

    @property
    def hits(self) -> int:
        """Accesses served."""
        return self.accesses - self.misses

    @property
    def moved_bytes(self) -> int:
        """Bytes between this level and the next: fetches and writes."""
        return (self.misses + self.write_backs + self.dirty_at_end) * self.line_bytes


def simulate(trace: Trace, size_bytes: int, line_bytes: int, ways: int | None = None) -> CacheCount:
    """Return what one cache does with a trace.

    Args:
        trace: the accesses.
        size_bytes: size of the cache.
        line_bytes: size of a line; a multiple of the trace's word.
        ways: lines of a set; None is fully associative.
    """
    return simulate_levels(trace, [Cache(size_bytes=size_bytes, line_bytes=line_bytes, ways=ways)])[0]


def simulate_levels(trace: Trace, levels: list[Cache]) -> list[CacheCount]:
    """Return what each of one or more levels does; a level sees the misses and write-backs of the one before it.

    Raises:
        UserError: no level, or levels with lines of different size.
    """
    if not levels or len({level.line_bytes for level in levels}) > 1:
        raise UserError("cache levels", got=levels, wanted="at least one level, all with lines of one size")
    line_bytes = levels[0].line_bytes
    accesses = trace.lines(line_bytes)
    lines = -(-trace.words * trace.word_bytes // line_bytes)
    counts: list[CacheCount] = []
    for number, level in enumerate(levels):
        count, emitted = _one_level(accesses, lines, level, emits=number + 1 < len(levels))
        counts.append(count)
        accesses = emitted
    return counts


def _one_level(
    accesses: NDArray[np.int64], lines: int, level: Cache, *, emits: bool
) -> tuple[CacheCount, NDArray[np.int64]]:
    nothing = np.zeros(0, np.int64)
    misses, write_backs, dirty = _run(accesses, lines, level, nothing)
    count = CacheCount(
        accesses=len(accesses), misses=misses, write_backs=write_backs, dirty_at_end=dirty, line_bytes=level.line_bytes
    )
    if not emits:
        return count, nothing
    emitted = np.empty(misses + write_backs, np.int64)
    _run(accesses, lines, level, emitted)
    return count, emitted


def _run(accesses: NDArray[np.int64], lines: int, level: Cache, emitted: NDArray[np.int64]) -> tuple[int, int, int]:
    from wattention.iocomplexity.cache import kernels

    if level.ways is None:
        result = kernels.fully_associative(accesses, lines, level.lines, emitted)
    else:
        result = kernels.set_associative(accesses, level.lines // level.ways, level.ways, emitted)
    return int(result[0]), int(result[1]), int(result[2])
