"""Address traces: what a schedule touches, word by word, when there is a cache instead of a fast memory it controls.

The run is the same; only the reading differs. A loaded tile is not a copy but the words of slow memory themselves,
so loading
touches them; a tile that is made in fast memory lives at addresses of a stack, which are used again when it is
freed. Every
operation touches its operands and then writes its result, one touch a word; streamed operands are touched as they pass.

Addresses count words from 0. Arrays of slow memory begin at multiples of ``align_words``; the stack follows behind
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.memory.observer import Streams, Sums
from wattention.iocomplexity.memory.selection import Tags
from wattention.iocomplexity.memory.slow import SlowArray
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.masks import Bools
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import Schedule, Tiles


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Accesses in order: ``2 * address + 1`` for a write, ``2 * address`` for a read, addresses in words."""

    accesses: NDArray[np.int64]
    words: int
    """Addresses are below this."""
    word_bytes: int

    def lines(self, line_bytes: int) -> NDArray[np.int64]:
        """The same accesses at the granularity of cache lines."""
        if line_bytes % self.word_bytes:
            raise UserError(
                "a cache line holds whole words", got=f"{line_bytes} bytes", wanted=f"a multiple of {self.word_bytes}"
            )
        per_line = line_bytes // self.word_bytes
        return (self.accesses >> 1) // per_line * 2 + (self.accesses & 1)


class Recorder:
    """Observer that notes what is touched; ``word_by_word`` makes it see streamed products as the loops they are."""

    def __init__(self, *, align_words: int, word_by_word: bool = False) -> None:
        self._word_by_word = word_by_word
        self._align, self._next = align_words, 0
        self._homes: dict[str, tuple[int, int]] = {}
        self._chunks: list[NDArray[np.int64]] = []
        self._stack: list[list[int]] = []
        self._top = self._deepest = 0

    def trace(self, word_bytes: int) -> Trace:
        """What was recorded; stack addresses are negative until here."""
        accesses = np.concatenate(self._chunks) if self._chunks else np.zeros(0, np.int64)
        address = accesses >> 1
        address = np.where(address < 0, self._next - 1 - address, address)
        return Trace(accesses=address * 2 + (accesses & 1), words=self._next + self._deepest, word_bytes=word_bytes)

    def placed(self, array: SlowArray) -> Tags:
        """Addresses of an array; scratch that is made anew keeps its place."""
        size = array.shape[0] * array.shape[1]
        start, length = self._homes.get(array.name, (0, -1))
        if size > length:
            start = self._next
            self._homes[array.name] = start, size
            self._next += -(-size // self._align) * self._align
        return np.arange(start, start + size, dtype=np.int64).reshape(array.shape)

    def loaded(self, tags: Tags, where: Bools | None) -> Tags:
        """Words are read where they lie."""
        self._touch(tags if where is None else tags[where], write=False)
        return tags

    def created(self, shape: tuple[int, int], role: str) -> Tags:
        """Words on the stack, written."""
        del role
        size = shape[0] * shape[1]
        tags = -1 - np.arange(self._top, self._top + size, dtype=np.int64).reshape(shape)
        self._stack.append([self._top, 0])
        self._top += size
        self._deepest = max(self._deepest, self._top)
        self._touch(tags, write=True)
        return tags

    def stored(self, tags: Tags, home: Tags) -> Tags:
        """Words are read from the tile, unless it is in place, and written to their home."""
        if not np.array_equal(tags, home):
            self._touch(tags, write=False)
        self._touch(home, write=True)
        return home

    def freed(self, tags: Tags) -> None:
        """Room on the stack is free again when nothing lies above it."""
        if tags.size and tags.flat[0] < 0:
            start = int(-1 - tags.max())
            next(entry for entry in reversed(self._stack) if entry[0] == start and not entry[1])[1] = 1
            while self._stack and self._stack[-1][1]:
                self._top = self._stack.pop()[0]

    def product(self, into: Tags, left: Tags, right: Tags, mask: Bools | None) -> None:
        """Both operands are read, the sums written."""
        self._touch(left, write=False)
        self._touch(right, write=False)
        self._touch(into if mask is None else into[mask], write=True)

    def streamed(self, into: Tags, left: Tags, right: Tags, how: Streams) -> bool:
        """The touches of the literal loop, laid out at once: for each term, then for each streamed word of it."""
        if self._word_by_word:
            return False
        height, depth, width = into.shape[0], left.shape[1], into.shape[1]
        reads, writes = 2, 1
        if how in {"columns held", "right"}:
            words, held, sums = right[:, :, None], left.T[:, None, :], into.T[None]
            outer, inner = (depth, width), height
        else:
            words, held, sums = left.T[:, :, None], right[:, None, :], into[None]
            outer, inner = (depth, height), width
        steps = (
            reads * words,
            reads * np.broadcast_to(held, (*outer, inner)) if how in {"columns held", "right"} else reads * words,
            reads * words if how in {"columns held", "right"} else reads * np.broadcast_to(held, (*outer, inner)),
            reads * np.broadcast_to(sums, (*outer, inner)) + writes,
        )
        body = np.concatenate(steps, axis=2).reshape(depth, -1)
        if how in {"columns held", "rows held"}:
            first = left.T if how == "columns held" else right
            body = np.concatenate([reads * first, body], axis=1)
        self._chunks.append(body.ravel())
        return True

    def accumulated(self, home: Tags, left: Tags, right: Tags, how: Sums) -> bool:
        """The touches of the literal loop: a column, then for every word the old value, operands, the new value."""
        if self._word_by_word:
            return False
        depth = left.shape[1]
        words = home.T[:, :, None]
        pairs = (*home.T.shape, depth)
        operands = np.concatenate(
            [np.broadcast_to(left[None], pairs), np.broadcast_to(right.T[:, None], pairs)], axis=2
        )
        if how.fresh:
            made = np.broadcast_to(np.int64(-1 - self._top), words.shape)
            self._deepest = max(self._deepest, self._top + 1)
            steps = [2 * made + 1, 2 * operands, 2 * made + 1, 2 * made, 2 * words + 1]
        else:
            decay = [] if how.decay is None else [2 * np.broadcast_to(how.decay[None], words.shape), 2 * words + 1]
            steps = [2 * words, *decay, 2 * operands, 2 * words + 1, 2 * words + 1]
        body = np.concatenate(steps, axis=2).reshape(home.shape[1], -1)
        if how.right_streams:
            body = np.concatenate([2 * right.T, body], axis=1)
        self._chunks.append(body.ravel())
        return True

    def changed(self, tags: Tags, *operands: Tags) -> None:
        """Operands are read, the tile is written."""
        for operand in operands:
            self._touch(operand, write=False)
        self._touch(tags, write=True)

    def _touch(self, tags: NDArray[Any], *, write: bool) -> None:
        self._chunks.append(tags.ravel() * 2 + write)


def record(
    schedule: Schedule,
    problem: Problem,
    fast_words: int,
    *,
    tiles: Tiles | None = None,
    word_bytes: int = 4,
    align_bytes: int = 64,
) -> Trace:
    """Return the address trace of a schedule planned for ``fast_words`` words, for one copy of a problem.

    Raises:
        UserError: widths other than one word for everything, which have no single word size.
    """
    if problem.widths != Widths():
        raise UserError("an address trace needs one word size", got=problem.widths, wanted="all widths 1")
    recorder = Recorder(align_words=max(1, align_bytes // word_bytes))
    execute(schedule, problem, fast_words, tiles=tiles, numbers=False, observer=recorder)
    return recorder.trace(word_bytes)
