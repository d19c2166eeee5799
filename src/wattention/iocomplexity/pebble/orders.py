"""Orders in which the steps of a large graph may be done well, before any of them is played.

``depth_first`` does what an output needs right before the output. ``grown`` imitates a fast memory of some size: again
and again it loads the word that enables most steps, and does every step that is enabled; on a matrix product this finds
a tile of C and the rank-one updates that keep it, on a butterfly the blocks of several stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattention.iocomplexity.pebble.bits import compiled
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.rules import Rules, steps_under

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A graph's steps as flat arrays (row k of a pair ``start``, ``item`` is item[start[k]:start[k + 1]])."""

    target: Ints
    read_start: Ints
    read_item: Ints
    before_start: Ints  # steps that must be done earlier
    before_item: Ints
    after_start: Ints
    after_item: Ints
    is_output: NDArray[np.bool_]
    steps_of_node: Ints  # how many steps write each node


def program(graph: Graph, rules: Rules) -> Program:
    """Return the steps of a graph as arrays."""
    steps = steps_under(graph, rules)
    own: list[list[int]] = [[] for _ in graph.nodes]
    for k, step in enumerate(steps):
        own[step.target].append(k)
    before: list[list[int]] = []
    after: list[list[int]] = [[] for _ in steps]
    for k, step in enumerate(steps):
        needed = {j for u in step.operands for j in own[u]}
        if step.last:
            needed |= {j for j in own[step.target] if j != k}
        before.append(sorted(needed))
        for j in needed:
            after[j].append(k)
    read_start, read_item = _flat([list(step.operands) for step in steps])
    before_start, before_item = _flat(before)
    after_start, after_item = _flat(after)
    is_output = np.zeros(len(graph), dtype=np.bool_)
    is_output[sorted(graph.outputs)] = True
    return Program(
        target=np.array([step.target for step in steps], dtype=np.int64),
        read_start=read_start, read_item=read_item, before_start=before_start, before_item=before_item,
        after_start=after_start, after_item=after_item, is_output=is_output,
        steps_of_node=np.array([len(row) for row in own], dtype=np.int64),
    )  # fmt: skip


def _flat(rows: list[list[int]]) -> tuple[Ints, Ints]:
    start = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=start[1:])
    return start, np.array([x for row in rows for x in row], dtype=np.int64)


def depth_first(p: Program) -> Ints:
    """Return the steps so that each comes right after what it needs: outputs in order, their needs first."""
    done = [False] * len(p.target)
    order: list[int] = []
    for end in range(len(p.target)):
        stack = [end]
        while stack:
            k = stack[-1]
            waiting = [int(b) for b in p.before_item[p.before_start[k] : p.before_start[k + 1]] if not done[b]]
            if waiting and not done[k]:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            if not done[k]:
                done[k] = True
                order.append(k)
    return np.array(order, dtype=np.int64)


def grown(p: Program, room: int) -> Ints:
    """Return the order of a program that grows in an imitated fast memory of ``room`` words."""
    order: Ints = _grow(
        room, p.target, p.read_start, p.read_item, p.before_start, p.after_start, p.after_item, p.steps_of_node
    )
    return order


@compiled
def _scan(free, target, read_start, read_item, waiting, left, begun, inside, gain):  # type: ignore[no-untyped-def]
    """Return the ready step that needs least and how much that is (0: nothing), and set what each word would enable.

    A word to fetch counts 4 (an accumulator that was begun and left 8), a result for which there is no room 3.
    """
    chosen, least = -1, 1 << 30
    gain[:] = 0.0
    for k in range(target.shape[0]):
        if waiting[k] != 0:
            continue
        t = target[k]
        absent = 0
        grows = 0 if inside[t] else 1
        last = t
        for r in range(read_start[k], read_start[k + 1]):
            w = read_item[r]
            if not inside[w]:
                absent += 1
                last = w
            if left[w] == 1:
                grows = 0
        if begun[t] and not inside[t]:
            absent += 2
        fits = grows <= free
        if absent == 1 and fits:
            gain[last] += 1.0 if grows == 0 else 0.9
        price = 4 * absent + (0 if fits else 3)
        if price < least:
            chosen, least = k, price
    return chosen, least


@compiled
def _forget(inside, dirty, stamp, keep):  # type: ignore[no-untyped-def]
    """Drop the clean word used longest ago, or a dirty one if all are dirty; return how many were dropped."""
    victim, oldest = -1, 1 << 60
    for w in range(inside.shape[0]):
        age = stamp[w] + ((1 << 40) if dirty[w] else 0)
        if inside[w] and w != keep and age < oldest:
            victim, oldest = w, age
    if victim < 0:
        return 0
    inside[victim] = dirty[victim] = False
    return 1


@compiled
def _grow(room, target, read_start, read_item, before_start, after_start, after_item, steps_of_node):  # type: ignore[no-untyped-def]
    steps, words = target.shape[0], steps_of_node.shape[0]
    waiting = before_start[1:] - before_start[:-1]  # -1 once done
    left = steps_of_node.copy()  # steps still to write or read a word
    for item in read_item:
        left[item] += 1
    begun, inside, dirty = np.zeros(words, np.bool_), np.zeros(words, np.bool_), np.zeros(words, np.bool_)
    stamp = np.zeros(words, np.int64)
    gain = np.zeros(words)
    order = np.empty(steps, np.int64)
    count = used = idle = 0
    for now in range(steps * (2 * room + 6)):
        k, least = _scan(room - used, target, read_start, read_item, waiting, left, begun, inside, gain)
        first, end, t = read_start[k], read_start[k + 1], target[k]
        if least == 0 or idle > 2 * room + 4:
            order[count] = k
            count += 1
            if count == steps:
                break
            waiting[k] = -1
            idle = 0
            used += 0 if inside[t] else 1
            inside[t] = begun[t] = dirty[t] = True
            for r in range(first, end + 1):
                w = t if r == end else read_item[r]
                left[w] -= 1
                stamp[w] = now
                if left[w] == 0 and inside[w]:
                    inside[w] = False
                    used -= 1
            for a in range(after_start[k], after_start[k + 1]):
                waiting[after_item[a]] -= 1
            continue
        idle += 1
        wanted = np.argmax(gain)
        if gain[wanted] <= 0.0:  # no word enables a step alone: fetch for the cheapest step, and keep its other words
            wanted = t
            stamp[t] = now
            for r in range(first, end):
                stamp[read_item[r]] = now
                if not inside[read_item[r]]:
                    wanted = read_item[r]
        if used >= room:
            used -= _forget(inside, dirty, stamp, wanted)
        if not inside[wanted] and (wanted != t or begun[t]):
            inside[wanted] = True
            stamp[wanted] = now
            used += 1
    return order
