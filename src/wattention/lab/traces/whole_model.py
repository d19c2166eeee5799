"""What a log of one traced layer says of a model of many: equal operators joined, the highest point of every phase."""

from __future__ import annotations

from collections import Counter

from torch import nn

from wattention.core.operators import MEMORY_KINDS, MemoryKind, MemoryPoint, Operator, Part, Stage
from wattention.lab.traces.operator_facts import OperatorFacts
from wattention.lab.traces.operator_recorder import Log


def operators_of(log: Log, layers: int) -> tuple[Operator, ...]:
    """Join equal operators; those of the traced layer stand for all layers."""
    joined: Counter[tuple[OperatorFacts, Part, Stage]] = Counter()
    for (facts, place, stage), times in log.operators.items():
        joined[facts, place.part, stage] += times * (layers if place.in_layer else 1)
    return tuple(
        Operator(part=part, stage=stage, times=times, **facts._asdict())
        for (facts, part, stage), times in joined.items()
    )


def memory_points(log: Log, block: nn.Module) -> tuple[MemoryPoint, ...]:
    """Replay the log: the highest point of each phase, and what one more layer adds to it."""
    level = dict.fromkeys(MEMORY_KINDS, 0)
    highest: dict[str, dict[MemoryKind, int]] = {}
    marks: list[dict[MemoryKind, int]] = []
    total = 0
    tops: dict[str, int] = {}
    for phase, number, size in log.events:
        if phase == "mark":
            marks.append(dict(level))
            continue
        level[log.kinds[number]] += size
        total += size
        if total > tops.get(phase, -1):
            tops[phase], highest[phase] = total, dict(level)
    weights = sum(p.numel() * p.element_size() for p in block.parameters())
    buffers = sum(b.numel() * b.element_size() for b in block.buffers())
    always = dict.fromkeys(MEMORY_KINDS, 0) | {"parameters": weights + buffers}
    if "optimiser" in log.kinds:
        always["optimiser"] = 2 * weights
    kept = {kind: always[kind] + marks[1][kind] - marks[0][kind] for kind in MEMORY_KINDS}
    left = always | {"gradients": weights}
    grows = {"forward, embedding": (always,), "backward, layer": (kept, left), "backward, embedding": (left,),
             "update": (left,)}  # fmt: skip
    return tuple(
        MemoryPoint(phase=phase, bytes_by_kind=at, layer_bytes=more)
        for phase, at in highest.items()
        for more in grows.get(phase, (kept,))
    )
