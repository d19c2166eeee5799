"""What both exact searches share: bit sets in 64-bit words, orbits under a group, and the table of states.

A state is three words. The table is an open-addressing hash over flat arrays that grow in place; states of equal
priority are linked lists, one a priority, so the queue of an A* with integer costs is two arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.uint64]
U0, U1 = np.uint64(0), np.uint64(1)
LIMIT = 64  # bits of a word
MANY = 1 << 40  # more successors than any memory holds

compiled: Any = njit(cache=True)  # what these return has no types a checker can use
inlined: Any = njit(cache=True, inline="always")

# what a search returns
DONE, FULL, CLOCK = 0, 1, 2
# its scalars: states in the table, current priority, cost to beat, goal state, states expanded, largest priority of an
# expanded state, room wanted when FULL
COUNT, NOW, BEAT, GOAL, EXPANDED, PROVED, WANTED = range(7)


@inlined
def bit(i):  # type: ignore[no-untyped-def]
    """Return the set {i}."""
    return U1 << np.uint64(i)


@inlined
def size(x):  # type: ignore[no-untyped-def]
    """Return the number of elements."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def next_choice(choice):  # type: ignore[no-untyped-def]
    """Return the next larger number with as many ones (Gosper): the next subset of the same size."""
    low = choice & -choice
    ripple = choice + low
    return (((ripple ^ choice) >> 2) // low) | ripple


@compiled
def choices(of, take):  # type: ignore[no-untyped-def]
    """Return how many subsets of size ``take`` there are, or ``MANY`` if that is less."""
    out = 1
    for i in range(min(take, of - take)):
        out = out * (of - i) // (i + 1)
        if out >= MANY:
            return MANY
    return out if take <= of else 0


def to_bits(rows: list[list[int]]) -> Words:
    """Return each row of numbers below 64 as one set."""
    return np.array([sum(1 << i for i in set(row)) for row in rows], dtype=np.uint64)


def from_bits(x: int) -> list[int]:
    """Return the elements of a set, smallest first."""
    return [i for i in range(LIMIT) if x >> i & 1]


def image_table(images: NDArray[np.int64]) -> Words:
    """Return the table with which :func:`smallest` maps sets: [byte, value of the byte, group element]."""
    group, points = images.shape
    table = np.zeros(((points + 7) // 8, 256, group), dtype=np.uint64)
    values = np.arange(256)
    for point in range(points):
        has = (values >> (point % 8)) & 1 == 1
        table[point // 8, has] |= (np.uint64(1) << images[:, point].astype(np.uint64))[None, :]
    return table


@compiled
def smallest(first, second, third, first_table, table, scratch):  # type: ignore[no-untyped-def]
    """Return the smallest image of a state: ``first`` under its own table, the other two under ``table``.

    ``scratch`` holds one word for each group element.
    """
    group = scratch.shape[0]
    if group == 1:
        return first, second, third
    scratch[:] = first_table[0, np.int64(first & np.uint64(255))]
    for byte in range(1, first_table.shape[0]):
        row = first_table[byte, np.int64((first >> np.uint64(8 * byte)) & np.uint64(255))]
        for g in range(group):
            scratch[g] |= row[g]
    least = scratch[0]
    for g in range(1, group):
        least = min(least, scratch[g])
    best_second = best_third = ~U0
    for g in range(group):
        if scratch[g] == least:
            y = z = U0
            for byte in range(table.shape[0]):
                shift = np.uint64(8 * byte)
                y |= table[byte, np.int64((second >> shift) & np.uint64(255)), g]
            if y > best_second:
                continue
            for byte in range(table.shape[0]):
                shift = np.uint64(8 * byte)
                z |= table[byte, np.int64((third >> shift) & np.uint64(255)), g]
            if y < best_second or z < best_third:
                best_second, best_third = y, z
    return least, best_second, best_third


@inlined
def _hash(a, b, c):  # type: ignore[no-untyped-def]
    x = a * np.uint64(0x9E3779B97F4A7C15) ^ b * np.uint64(0xC2B2AE3D27D4EB4F) ^ c * np.uint64(0x165667B19E3779F9)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    return x ^ (x >> np.uint64(32))


@compiled
def _enter_all(keys, count, table):  # type: ignore[no-untyped-def]
    """Enter the first ``count`` keys into an empty table; of equal keys the last one stays."""
    mask = np.uint64(table.shape[0] - 1)
    for i in range(count):
        slot = _hash(keys[i, 0], keys[i, 1], keys[i, 2]) & mask
        while table[slot] != 0:
            j = table[slot] - 1
            if keys[j, 0] == keys[i, 0] and keys[j, 1] == keys[i, 1] and keys[j, 2] == keys[i, 2]:
                break
            slot = (slot + U1) & mask
        table[slot] = i + 1


@compiled
def push(a, b, c, priority, parent, keys, cost, parents, after, heads, table, scalars):  # type: ignore[no-untyped-def]
    """Enter a state unless it is known at no higher priority; a better one supersedes the old entry."""
    mask = np.uint64(table.shape[0] - 1)
    slot = _hash(a, b, c) & mask
    while table[slot] != 0:
        j = table[slot] - 1
        if keys[j, 0] == a and keys[j, 1] == b and keys[j, 2] == c:
            if cost[j] <= priority:
                return
            cost[j] = -1
            break
        slot = (slot + U1) & mask
    i = scalars[COUNT]
    keys[i, 0], keys[i, 1], keys[i, 2] = a, b, c
    cost[i], parents[i] = priority, parent
    after[i] = heads[priority]
    heads[priority] = i
    table[slot] = i + 1
    scalars[COUNT] = i + 1
    scalars[NOW] = min(scalars[NOW], priority)


@compiled
def pop(cost, after, heads, scalars):  # type: ignore[no-untyped-def]
    """Return the number of a state of the lowest priority below the cost to beat, or -1 if there is none."""
    while scalars[NOW] < scalars[BEAT]:
        priority = scalars[NOW]
        i = heads[priority]
        if i < 0:
            scalars[NOW] = priority + 1
            continue
        heads[priority] = after[i]
        if cost[i] == priority:
            scalars[EXPANDED] += 1
            scalars[PROVED] = max(scalars[PROVED], priority)
            return i
    return -1


@compiled
def put_back(i, wanted, cost, after, heads, scalars):  # type: ignore[no-untyped-def]
    """Return a popped state to the queue because its ``wanted`` successors do not fit."""
    after[i] = heads[cost[i]]
    heads[cost[i]] = i
    scalars[WANTED] = wanted


@dataclass
class States:
    """The table of states and the queue; ``beat`` is the cost that a solution must stay below."""

    beat: int
    memory_bytes: int
    keys: Words = field(init=False)
    cost: NDArray[np.int32] = field(init=False)
    parents: NDArray[np.int32] = field(init=False)
    after: NDArray[np.int32] = field(init=False)
    heads: NDArray[np.int32] = field(init=False)
    table: NDArray[np.int32] = field(init=False)
    scalars: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.memory_bytes = max(self.memory_bytes, 1 << 20)
        self.keys = np.zeros((0, 3), dtype=np.uint64)
        self.cost, self.parents, self.after = (np.zeros(0, dtype=np.int32) for _ in range(3))
        self.heads = np.full(self.beat + 1, -1, dtype=np.int32)
        self.table = np.zeros(1 << 12, dtype=np.int32)
        self.scalars = np.array([0, 0, self.beat, -1, 0, 0, 0], dtype=np.int64)
        self.grow(1 << 11)

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The arrays in the order the searches take them."""
        return self.keys, self.cost, self.parents, self.after, self.heads, self.table, self.scalars

    def grow(self, room: int) -> bool:
        """Make room for ``room`` more states; return False, changing nothing, if the memory limit forbids it."""
        wanted = int(self.scalars[COUNT]) + room
        if wanted * 44 > self.memory_bytes:
            return False
        slots = len(self.table)
        while slots < 2 * wanted:
            slots *= 2
        if wanted > len(self.keys):
            wanted = max(wanted, slots // 2)
        if wanted * 36 + slots * 4 > self.memory_bytes or wanted >= 2**31:
            return False
        if wanted > len(self.keys):
            self.keys.resize((wanted, 3), refcheck=False)
            for array in (self.cost, self.parents, self.after):
                array.resize(wanted, refcheck=False)
        if slots > len(self.table):
            self.table = np.zeros(slots, dtype=np.int32)
            _enter_all(self.keys, int(self.scalars[COUNT]), self.table)
        return True

    def path(self) -> list[tuple[int, int, int]]:
        """Return the states from the start to the goal."""
        out = []
        i = int(self.scalars[GOAL])
        while i >= 0:
            a, b, c = self.keys[i]
            out.append((int(a), int(b), int(c)))
            i = int(self.parents[i])
        return out[::-1]
