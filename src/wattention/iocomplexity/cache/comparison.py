"""One schedule under three rules of replacement: the program decides, LRU decides, LRU within sets decides.

The first is the count of the memory machine; the others are simulations of the address trace of the same run. Tiles
may be
planned for less memory than the cache has: LRU keeps what was used last, not what the program wants, and needs slack.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattention.iocomplexity.cache.lru import CacheCount, simulate
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.execution.trace import record
from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Schedule


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A schedule planned for ``planned_words`` on a cache of ``cache_bytes``."""

    planned_words: int
    cache_bytes: int
    ideal: Count
    fully_associative: CacheCount
    set_associative: CacheCount
    word_bytes: int

    @property
    def ideal_bytes(self) -> int:
        """Bytes that the program moves if it controls fast memory."""
        return self.ideal.words * self.word_bytes

    @property
    def lru_ratio(self) -> float:
        """Bytes under LRU over bytes under control of the program."""
        return self.fully_associative.moved_bytes / self.ideal_bytes

    @property
    def set_ratio(self) -> float:
        """The same for the set-associative cache."""
        return self.set_associative.moved_bytes / self.ideal_bytes


def compare(
    schedule: Schedule,
    problem: Problem,
    *,
    cache_bytes: int,
    line_bytes: int = 64,
    ways: int = 8,
    word_bytes: int = 4,
    shares: tuple[float, ...] = (1.0, 0.5, 0.25),
) -> list[Comparison]:
    """Return the table of a schedule on one cache, with tiles planned for each share of it.

    Args:
        schedule: the algorithm.
        problem: the problem; one copy is run.
        cache_bytes: size of the cache.
        line_bytes: size of a line.
        ways: lines of a set in the set-associative column.
        word_bytes: bytes of a word.
        shares: how much of the cache the tiles are planned for.

    Raises:
        FastMemoryTooSmallError: a share is too small for the schedule.
    """
    rows = []
    for share in shares:
        words = int(share * cache_bytes // word_bytes)
        ideal = execute(schedule, problem, words, numbers=False).count
        trace = record(schedule, problem, words, word_bytes=word_bytes, align_bytes=line_bytes)
        rows.append(
            Comparison(
                planned_words=words,
                cache_bytes=cache_bytes,
                ideal=ideal,
                fully_associative=simulate(trace, cache_bytes, line_bytes),
                set_associative=simulate(trace, cache_bytes, line_bytes, ways),
                word_bytes=word_bytes,
            )
        )
    return rows
