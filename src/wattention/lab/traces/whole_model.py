"""What a log of one traced layer says of a model of many: equal operators joined, and the memory of every phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wattention.core.operators import (
    MEMORY_KINDS,
    MemoryKind,
    MemoryLine,
    MemoryPoint,
    Operator,
    Part,
    Stage,
    StepTrace,
)
from wattention.lab.traces.operator_facts import OperatorFacts
from wattention.lab.traces.operator_recorder import Log


def step_of(log: Log, layers: int) -> StepTrace:
    """Return the trace of a step of so many layers."""
    return StepTrace(
        operators=operators_of(log, layers),
        memory=memory_points(log),
        further_layers=layers - 1,
        cache_bytes=log.cache_bytes * layers,
    )


def operators_of(log: Log, layers: int) -> tuple[Operator, ...]:
    """Join equal operators; those of the traced layer stand for all layers."""
    joined: Counter[tuple[OperatorFacts, Part, Stage]] = Counter()
    for (facts, place, stage), times in log.operators.items():
        joined[facts, place.part, stage] += times * (layers if place.in_layer else 1)
    return tuple(Operator(*facts, part, stage, times) for (facts, part, stage), times in joined.items())


_FURTHER_LAYER: Mapping[str, tuple[str, ...]] = {
    "forward, embedding": ("held",),
    "backward, layer": ("kept", "left"),
    "backward, embedding": ("left",),
    "update": ("left",),
}
"""What one more layer has alive in a phase: what it holds anyway, beside what it keeps for the backward pass, or beside
the gradients it leaves; everywhere else what it keeps."""


def memory_points(log: Log) -> tuple[MemoryPoint, ...]:
    """Replay the log: the highest point of each phase, and what one more layer adds to it."""
    level = dict.fromkeys(MEMORY_KINDS, 0)
    highest: dict[str, dict[MemoryKind, int]] = {}
    marks: list[dict[MemoryKind, int]] = []
    total = 0
    tops: dict[str, int] = {}
    for phase, number, sign in log.events:
        if not sign:
            marks.append(dict(level))
            continue
        change = sign * log.sizes[number]
        level[log.kinds[number]] += change
        total += change
        if total > tops.get(phase, -1):
            tops[phase], highest[phase] = total, dict(level)
    held = dict.fromkeys(MEMORY_KINDS, 0) | {"parameters": log.weight_bytes + log.buffer_bytes}
    if "optimiser" in log.kinds:
        held["optimiser"] = 2 * log.weight_bytes
    further = {
        "held": held,
        "kept": {kind: held[kind] + marks[1][kind] - marks[0][kind] for kind in MEMORY_KINDS},
        "left": held | {"gradients": log.weight_bytes},
    }
    return tuple(
        MemoryPoint(phase=phase, bytes_by_kind=at, layer_bytes=further[more])
        for phase, at in highest.items()
        for more in _FURTHER_LAYER.get(phase, ("kept",))
    )


class StorageGrowth(NamedTuple):
    """How the bytes of a storage grow with the batch."""

    share: float
    """Of its bytes, the share that grows in proportion."""
    limit_bytes: int
    """Where it grows up to a limit: the limit; else 0."""


def memory_lines(log: Log, growth: Sequence[StorageGrowth], batch: int, layers: int) -> set[MemoryLine]:
    """Replay the log of a step of ``batch`` sequences: what is alive after every event, against the batch."""
    fixed = growing = 0.0
    points: set[tuple[str, float, float]] = set()
    marks: list[tuple[float, float]] = []
    for phase, number, sign in log.events:
        if not sign:
            marks.append((fixed, growing))
            continue
        share, limit_bytes = growth[number]
        size = max(log.sizes[number], limit_bytes)
        growing += sign * size * share
        fixed += sign * size * (1.0 - share)
        if sign > 0:
            points.add((phase, fixed, growing))
    held = (3 if "optimiser" in log.kinds else 1) * log.weight_bytes + log.buffer_bytes
    (fixed_before, growing_before), (fixed_after, growing_after) = marks[:2]
    further = {
        "held": (held, 0.0),
        "kept": (held + fixed_after - fixed_before, growing_after - growing_before),
        "left": (held + log.weight_bytes, 0.0),
    }
    return {
        MemoryLine(fixed + (layers - 1) * further[more][0], (growing + (layers - 1) * further[more][1]) / batch)
        for phase, fixed, growing in points
        for more in _FURTHER_LAYER.get(phase, ("kept",))
    }
