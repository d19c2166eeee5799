"""How the memory of a training step grows with the batch, without tracing every step twice.

A second trace, of very many sequences, tells of every storage how it grows with the batch: in proportion where it
holds tokens, not at all where it holds weights or their gradients, up to a limit where it is scratch of a kernel that
works on a group of heads at a time. That is so for the program, its storages as they come and go, whatever the length.
So the second trace is made once, and the same program at another length is known by its own first one::

    (8, 1000, 768) comes, (768, 768) comes, ...      the second trace: the first grows, the other does not
    (8, 2000, 768) comes, (768, 768) comes, ...      the same program: so it is here

What has a limit counts with it for every batch: never too little, and next to the rest it is small.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from wattention.core.operators import MemoryLine
from wattention.lab.traces.operator_recorder import Log
from wattention.lab.traces.whole_model import StorageGrowth, memory_lines, memory_points

MANY = 27720
"""Batches of the second trace: so many that what has a limit has reached it, with divisors for groups of every size."""
_MOST_SEQUENCES = 2**28
"""... but no more than this, whose bytes are still whole numbers of 64 bits."""
_OF_LIMITED = 0.05
"""A share that grows, and is no larger, is of what has a limit."""
_MOST_PROGRAMS = 512

_GROWTH: dict[Hashable, tuple[StorageGrowth, ...] | None] = {}


def growth_of(
    log: Log, *, batch: int, layers: int, kind: Hashable, trace: Callable[[int], Log]
) -> tuple[MemoryLine, ...]:
    """Return the bytes alive at the points of a step that are the highest for some batch, all layers.

    Args:
        log: of a training step.
        batch: its sequences.
        layers: of the whole model.
        kind: what else belongs to a program: mechanism, settings, precision, device.
        trace: traces a step of so many sequences; called where the program is not known yet.
    """
    growth = _growth_of_storages(log, kind, batch, trace)
    if growth is None and batch == 1:  # one sequence may have views where several need copies
        log, batch = trace(2), 2
        growth = _growth_of_storages(log, kind, batch, trace)
    if growth is None:
        times = _many(batch)
        return _highest(_by_phase(log, trace(times * batch), times, batch, layers))
    return _highest(memory_lines(log, growth, batch, layers))


def _growth_of_storages(
    log: Log, kind: Hashable, batch: int, trace: Callable[[int], Log]
) -> tuple[StorageGrowth, ...] | None:
    """Tell how each storage grows; None where many sequences are another program."""
    events = _ordered(log.events)
    program = kind, events, tuple(log.dims)
    if program not in _GROWTH:
        times = _many(batch)
        many = trace(times * batch)
        alike = _ordered(many.events) == events
        if len(_GROWTH) >= _MOST_PROGRAMS:
            del _GROWTH[next(iter(_GROWTH))]
        _GROWTH[program] = tuple(map(partial(_growth, times), log.sizes, many.sizes)) if alike else None
    return _GROWTH[program]


def _many(batch: int) -> int:
    """Batches of the second trace."""
    return min(MANY, max(2, _MOST_SEQUENCES // batch))


def _ordered(events: Iterable[tuple[str, int, int]]) -> tuple[Any, ...]:
    """Sort what is freed at once, which happens in no particular order where torch keeps it in a hash table."""
    runs = groupby(events, key=itemgetter(2))
    return tuple(chain.from_iterable(sorted(run) if sign < 0 else run for sign, run in runs))


def _growth(times: int, size: int, many_size: int) -> StorageGrowth:
    """Tell how a storage grows from its bytes in both traces, the second of so many times the batch."""
    share = (many_size - size) / ((times - 1) * size) if size else 0.0
    return StorageGrowth(share, 0) if share > _OF_LIMITED else StorageGrowth(0.0, many_size if share else 0)


def _by_phase(log: Log, many: Log, times: int, batch: int, layers: int) -> Iterable[MemoryLine]:
    """Draw a line for each phase through its highest points, where storages do not correspond."""
    for one, other in zip(memory_points(log), memory_points(many), strict=True):
        low, high = (sum(point.at(layers - 1).values()) for point in (one, other))
        each = (high - low) / ((times - 1) * batch)
        yield MemoryLine(low - batch * each, each)


def _highest(lines: Iterable[MemoryLine]) -> tuple[MemoryLine, ...]:
    """Leave out lines that lie below another one for every batch."""
    kept: list[MemoryLine] = []
    for line in sorted(lines, key=lambda line: (line.sequence_bytes, line.fixed_bytes), reverse=True):
        if not kept or line.fixed_bytes > kept[-1].fixed_bytes:
            kept.append(line)
    return tuple(kept)
