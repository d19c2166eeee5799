"""Words that the attention of a run's mechanisms has to move between a core's L2 cache and memory, and the lower bound.

This is the two-level model (Hong and Kung 1981), not a measurement: the algorithm that a mechanism's kernel follows,
with the best tiles for M words of fast memory, forward pass, all heads and sequences of one training step and one
layer. M is the L2 cache that the records name. Only mechanisms whose algorithm and shape the records tell are placed
here; the others say why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattention.analysis.cells import by_block
from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, Reading, predicted
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec
from wattention.iocomplexity.planner import all_schedules, plan
from wattention.iocomplexity.problem import Problem, attention_problem

_WORD_BYTES = {"float32": 4, "bfloat16": 2}
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_FULL = frozenset({"baseline", "sdpa", "flash"})
"""Mechanisms that are full causal multi-head attention; their kernel tells which algorithm they follow."""
_WHY_NOT = {
    "gqa": "the records do not tell how many heads share a key",
    "sliding_window": "the records do not tell the window",
    "lsh": "which pairs it forms depends on the data",
    "mla": "the records do not tell the widths of its keys and values",
}


@dataclass(frozen=True, kw_only=True)
class Movement:
    """One mechanism: the algorithm it follows, the words this moves, and the bound; readings in words."""

    algorithm: str
    moved: Reading
    bound: Reading


@dataclass(frozen=True, kw_only=True)
class DataMovement:
    """All mechanisms of a run on one size of fast memory."""

    cache_bytes: int
    fast_words: int
    movements: Mapping[str, Movement]


def data_movement(spec: RunSpec, records: Sequence[CellRecord]) -> DataMovement | None:
    """Return the movement of every mechanism; None where the records name no L2 cache or none can be placed."""
    cache_bytes = fast_memory_bytes(records)
    if cache_bytes is None or spec.device != "cpu":
        return None
    fast_words = cache_bytes // _WORD_BYTES[spec.training.precision]
    problem = attention_problem(
        tokens=spec.training.tokens or spec.model.context,
        head_dim=spec.model.width // spec.model.heads,
        mask="causal",
        heads=spec.model.heads,
        batch=spec.training.batch,
    )
    trained = by_block(records, "train")
    movements = {
        choice.label: _movement(choice.source, next(iter(trained[choice.label].values())), problem, fast_words)
        for choice in spec.mechanisms
        if trained.get(choice.label)
    }
    if not any(isinstance(one.moved, Quantity) for one in movements.values()):
        return None
    return DataMovement(cache_bytes=cache_bytes, fast_words=fast_words, movements=movements)


def fast_memory_bytes(records: Sequence[CellRecord]) -> int | None:
    """The L2 cache that all records name; None where they name none, or differ."""
    sizes = {size for record in records if (size := _l2_bytes(record)) is not None}
    return sizes.pop() if len(sizes) == 1 else None


def _movement(source: str, record: CellRecord, problem: Problem, fast_words: int) -> Movement:
    kernel = str(record.facts.get("kernel", ""))
    if source == "linear":
        return _planned("linear", problem, fast_words)
    if source in _FULL and "flash" in kernel:
        return _planned("flash2", problem, fast_words)
    if source in _FULL and "softmax" in kernel:
        return _planned("standard", problem, fast_words)
    why = _WHY_NOT.get(source, f"no algorithm of the two-level model is known for {kernel or 'its kernel'}")
    return Movement(algorithm="", moved=Absent(why), bound=Absent(why))


def _planned(name: str, problem: Problem, fast_words: int) -> Movement:
    chosen = [schedule for schedule in all_schedules() if schedule.name == name]
    form: Literal["linear", "attention"] = "linear" if name == "linear" else "attention"
    try:
        best = plan(problem, fast_words, direction="forward", form=form, schedules=chosen).best
    except UserError as error:
        return Movement(algorithm=name, moved=Absent(error.what), bound=Absent(error.what))
    source = f"two-level model with M = {fast_words} words, schedule {name} with its best tiles, forward pass"
    bound: Reading = best.bound.quantity if best.bound is not None else Absent("no theorem covers this form")
    return Movement(algorithm=name, moved=predicted(float(best.words), "word", source), bound=bound)


def _l2_bytes(record: CellRecord) -> int | None:
    """The L2 cache of the host, e.g. ``{"level": "2", "size": "512K"}``."""
    for cache in record.environment.get("host", {}).get("caches", ()):
        size = str(cache.get("size", ""))
        if str(cache.get("level")) == "2" and size[:-1].isdigit() and size[-1:] in _UNITS:
            return int(size[:-1]) * _UNITS[size[-1]]
    return None
