"""Bytes that a layer's attention moves, forward and backward, for the mechanisms whose algorithm the records tell.

The two-level model, not a measurement: the algorithm that the mechanism's kernel follows with the best tiles for one
fast memory, a core's L2 cache on a CPU, the shared memory of one block on a GPU; attention without its projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from wattention.analysis.data_movement import (
    WORD_BYTES,
    algorithm_of,
    fast_memory_bytes,
    plan_algorithm,
    problem_of,
)
from wattention.core.attended import AttendedPairs, attended_from_json
from wattention.core.errors import UserError
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec
from wattention.hardware.catalog import load_profile, profiles_of_device

_BACKWARD = {"standard": "autograd_backward", "flash2": "one_pass"}
"""The backward schedule beside a forward one; the linear form has a closed form of its own."""


@dataclass(frozen=True, kw_only=True)
class FastMemory:
    """What traffic is counted against: the memory a kernel works in."""

    size_bytes: int
    title: str


def find_fast_memory(spec: RunSpec, records: Sequence[CellRecord]) -> FastMemory | None:
    """A core's L2, or a block's shared memory; None where the records name none, or a device without a profile."""
    if spec.device == "cpu":
        size = fast_memory_bytes(records)
        return None if size is None else FastMemory(size_bytes=size, title="one core's L2 cache")
    names = {str(record.environment.get("device", {}).get("name", "")) for record in records}
    known = profiles_of_device(names.pop()) if len(names) == 1 else ()
    if not known:
        return None
    profile = load_profile(known[0])  # variants of a chip share what one block can use
    level = next((one for one in profile.fast_levels if one.name == "shared"), None)
    title = f"the shared memory of one block ({profile.title})"
    return None if level is None else FastMemory(size_bytes=level.capacity_bytes, title=title)


def attention_bytes(
    spec: RunSpec, record: CellRecord | None, tokens: int, batch: int, fast: FastMemory | None
) -> float | str:
    """Bytes that one layer's attention moves in a forward and a backward pass; in words why they are not known.

    Args:
        record: a training cell of the mechanism: its kernel, and what it attends.
        tokens: length of a sequence, that of training or another.
    """
    if record is None:
        return "its training cell, which tells its kernel, did not finish"
    if fast is None:
        return "the records name no cache, or a device without a profile"
    facts, kernel = record.facts.get("attends"), str(record.facts.get("kernel", ""))
    if facts is None:
        return "its record does not say which pairs it attends"
    attended = attended_from_json(facts)
    algorithm = algorithm_of(attended, kernel)
    if not algorithm:
        return f"no algorithm of the two-level model is known for {kernel or 'its kernel'}"
    word = WORD_BYTES[spec.training.precision]
    window = _window(attended, record, tokens)
    try:
        words = _planned_words(algorithm, replace(attended, window=window), tokens, fast.size_bytes // word)
    except UserError as error:
        return error.what
    return float(words * batch * word)


def _window(attended: AttendedPairs, record: CellRecord, tokens: int) -> int | None:
    """Keys a query sees at another length: as set, else by the mechanisms' own rule, at most a quarter of all."""
    if attended.window is None:
        return None
    fixed = any(record.facts.get("settings", {}).get(name) for name in ("window", "earlier"))
    return min(attended.window, tokens if fixed else max(tokens // 4, 1))


@cache
def _planned_words(algorithm: str, attended: AttendedPairs, tokens: int, fast_words: int) -> int:
    """Words of one sequence, forward and backward, with the best tiles; hash rounds are further sequences."""
    problem = problem_of(attended, tokens=tokens, batch=1, as_run=True)
    forward = plan_algorithm(algorithm, problem, fast_words, "forward").words
    if algorithm == "linear":
        # two sweeps over q, k, v and the output's gradient, as its kernel makes them, and three gradients
        width = 6 * attended.key_dim + 5 * attended.value_dim
        return forward + attended.heads * tokens * width
    return forward + plan_algorithm(_BACKWARD[algorithm], problem, fast_words, "backward").words
