"""Loops over an address trace, compiled.

Fully associative: lines form a doubly linked list in order of use, indexed by line number, so an access is O(1)
whatever the
size. Set associative: the ways of a set lie in order of use in one row, and an access moves its line to the front.
Both are write-back and write-allocate. With an output array they also emit what they ask of the next level, in order:
a read for every miss, a write for every dirty line that leaves.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Accesses = NDArray[np.int64]


def _fully_associative(accesses: Accesses, lines: int, capacity: int, emitted: Accesses) -> tuple[int, int, int]:
    """Return misses, write-backs and dirty lines at the end; the list's head is entry ``lines``."""
    after = np.full(lines + 1, lines, dtype=np.int32)
    before = np.full(lines + 1, lines, dtype=np.int32)
    state = np.zeros(lines, dtype=np.uint8)  # 0 absent, 1 clean, 2 dirty
    misses = write_backs = used = at = 0
    emits = emitted.size > 0
    newest: Any = lines
    for access in accesses:
        line = np.int32(access >> 1)
        write = access & 1
        known = state[line]
        if known != 0:
            if line != newest:
                older, newer = after[line], before[line]
                after[newer] = older
                before[older] = newer
                after[line] = newest
                before[line] = lines
                before[newest] = line
                after[lines] = line
                newest = line
            if write:
                state[line] = 2
            continue
        misses += 1
        if used == capacity:
            victim = before[lines]
            last = before[victim]
            after[last] = lines
            before[lines] = last
            if last == lines:
                newest = lines
            if state[victim] == 2:
                write_backs += 1
                if emits:
                    emitted[at] = victim * 2 + 1
                    at += 1
            state[victim] = 0
        else:
            used += 1
        if emits:
            emitted[at] = np.int64(line) * 2
            at += 1
        after[line] = newest
        before[line] = lines
        before[newest] = line
        after[lines] = line
        newest = line
        state[line] = 1 + write
    dirty = 0
    for known in state:
        dirty += 1 if known == 2 else 0
    return misses, write_backs, dirty


def _set_associative(accesses: Accesses, sets: int, ways: int, emitted: Accesses) -> tuple[int, int, int]:
    """Return misses, write-backs and dirty lines at the end."""
    table = np.full((sets, ways), -1, dtype=np.int64)  # line * 2 + dirty, most recently used first
    misses = write_backs = at = 0
    emits = emitted.size > 0
    mask = sets - 1 if sets & (sets - 1) == 0 else -1
    for access in accesses:
        line = access >> 1
        row = table[line & mask] if mask >= 0 else table[line % sets]
        entry = row[0]
        if entry >> 1 == line:
            row[0] = entry | (access & 1)
            continue
        way = 1
        while way < ways and row[way] >> 1 != line:
            way += 1
        if way < ways:
            entry = row[way] | (access & 1)
        else:
            misses += 1
            way = ways - 1
            victim = row[way]
            if victim >= 0 and victim & 1:
                write_backs += 1
                if emits:
                    emitted[at] = victim
                    at += 1
            if emits:
                emitted[at] = line * 2
                at += 1
            entry = access
        while way > 0:
            row[way] = row[way - 1]
            way -= 1
        row[0] = entry
    dirty = 0
    for kept in table.ravel():
        dirty += 1 if kept >= 0 and kept & 1 else 0
    return misses, write_backs, dirty


fully_associative: Any = numba.njit(cache=True)(_fully_associative)
set_associative: Any = numba.njit(cache=True)(_set_associative)
