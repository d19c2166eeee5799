"""Words that the attention of a run's mechanisms has to move between a core's L2 cache and memory, and the lower bound.

This is the two-level model (Hong and Kung 1981), not a measurement: the algorithm that a mechanism's kernel follows,
with the best tiles for M words of fast memory, forward pass, all heads and sequences of one training step and one
layer. M is the L2 cache that the records name. What a mechanism attends is in its record (core/attended.py); one whose
kernel or pairs are not known says so. Where the pairs depend on the data, the algorithm moves what the most pairs it
can form ask for, and no bound is given: a bound for pairs that may be absent would be no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattention.analysis.cells import by_block
from wattention.core.attended import AttendedPairs, attended_from_json
from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, Reading, predicted
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec
from wattention.iocomplexity.bounds.base import Direction
from wattention.iocomplexity.planning.planner import PlannedSchedule, all_schedules, plan
from wattention.iocomplexity.problem.attention import Problem, attention_problem

WORD_BYTES = {"float32": 4, "bfloat16": 2}
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


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
    fast_words = cache_bytes // WORD_BYTES[spec.training.precision]
    trained = by_block(records, "train")
    movements = {
        choice.label: _movement(spec, next(iter(trained[choice.label].values())), fast_words)
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


def _movement(spec: RunSpec, record: CellRecord, fast_words: int) -> Movement:
    facts = record.facts.get("attends")
    if facts is None:
        why = "its record does not say which pairs it attends"
        return Movement(algorithm="", moved=Absent(why), bound=Absent(why))
    attended, kernel = attended_from_json(facts), str(record.facts.get("kernel", ""))
    name = algorithm_of(attended, kernel)
    if not name:
        why = f"no algorithm of the two-level model is known for {kernel or 'its kernel'}"
        return Movement(algorithm="", moved=Absent(why), bound=Absent(why))
    tokens, batch = spec.training.tokens or spec.model.context, spec.training.batch
    moved, bound = _planned(name, problem_of(attended, tokens=tokens, batch=batch, as_run=True), fast_words)
    if attended.data_dependent:
        bound = Absent("which of these pairs it forms depends on the data")
    elif attended.kernel_value_dim is not None:
        _, bound = _planned(name, problem_of(attended, tokens=tokens, batch=batch, as_run=False), fast_words)
    return Movement(algorithm=name, moved=moved, bound=bound)


def algorithm_of(attended: AttendedPairs, kernel: str) -> str:
    """Return the forward schedule that a kernel follows, by the name the profiler saw; empty where none is known."""
    if attended.form == "linear":
        return "linear"
    if "flash" in kernel:
        return "flash2"
    return "standard" if "softmax" in kernel else ""


def problem_of(attended: AttendedPairs, *, tokens: int, batch: int, as_run: bool) -> Problem:
    """Return one layer's attention as a problem of the two-level model.

    Args:
        attended: what the mechanism attends; hash rounds are further sequences.
        tokens, batch: length and number of the sequences.
        as_run: with the widths the kernel is given, padding included, instead of the widths of the mathematics.
    """
    value_dim = attended.kernel_value_dim if as_run and attended.kernel_value_dim else attended.value_dim
    return attention_problem(
        tokens=tokens,
        head_dim=attended.key_dim,
        value_dim=value_dim,
        mask="causal" if attended.window is None else f"window:{min(attended.window, tokens)}",
        heads=attended.heads,
        kv_heads=attended.kv_heads,
        batch=batch * attended.rounds,
    )


def plan_algorithm(name: str, problem: Problem, fast_words: int, direction: Direction) -> PlannedSchedule:
    """Return one schedule with its best tiles for M words of fast memory.

    Raises:
        UserError: it does not fit, or does not serve the problem.
    """
    chosen = [schedule for schedule in all_schedules() if schedule.name == name]
    form: Literal["linear", "attention"] = "linear" if name == "linear" else "attention"
    saved = name == "autograd_backward"  # explicit attention keeps its n x n weights for the backward pass
    return plan(problem, fast_words, direction=direction, form=form, saved=saved, schedules=chosen).best


def _planned(name: str, problem: Problem, fast_words: int) -> tuple[Reading, Reading]:
    try:
        best = plan_algorithm(name, problem, fast_words, "forward")
    except UserError as error:
        return Absent(error.what), Absent(error.what)
    source = f"two-level model with M = {fast_words} words, schedule {name} with its best tiles, forward pass"
    bound: Reading = best.bound.quantity if best.bound is not None else Absent("no theorem covers this form")
    return predicted(float(best.words), "word", source), bound


def _l2_bytes(record: CellRecord) -> int | None:
    """The L2 cache of the host, e.g. ``{"level": "2", "size": "512K"}``."""
    for cache in record.environment.get("host", {}).get("caches", ()):
        size = str(cache.get("size", ""))
        if str(cache.get("level")) == "2" and size[:-1].isdigit() and size[-1:] in _UNITS:
            return int(size[:-1]) * _UNITS[size[-1]]
    return None
