"""Bytes that a layer's attention moves, forward and backward, for the mechanisms whose algorithm the records tell.

The two-level model, not a measurement: the algorithm that the mechanism's kernel follows with the best tiles for one
fast memory, a core's L2 cache on a CPU, the shared memory of one block on a GPU; attention without its projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from wattention.analysis.data_movement import fast_memory_bytes
from wattention.core.errors import UserError
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec
from wattention.hardware.catalog import load_profile, profiles_of_device
from wattention.iocomplexity.bounds.base import Direction
from wattention.iocomplexity.planner import all_schedules, plan
from wattention.iocomplexity.problem import Problem, attention_problem

WORD_BYTES = {"float32": 4, "bfloat16": 2}
_WHY_NOT = {
    "lsh": "which pairs it forms depends on the data",
    "mla": "the records do not tell the widths of its keys and values",
}


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
    spec: RunSpec, source: str, record: CellRecord | None, tokens: int, batch: int, fast: FastMemory | None
) -> float | str:
    """Bytes that one layer's attention moves in a forward and a backward pass; in words why they are not known.

    Args:
        source: the mechanism's source.
        record: a training cell of it: its kernel, and a cache that tells its heads or its window.
    """
    if record is None:
        return "its training cell, which tells its kernel, did not finish"
    if fast is None:
        return "the records name no cache, or a device without a profile"
    word, kernel = WORD_BYTES[spec.training.precision], str(record.facts.get("kernel", ""))
    algorithms = _algorithms(source, kernel)
    if algorithms is None:
        return _WHY_NOT.get(source, f"no algorithm of the two-level model is known for {kernel or 'its kernel'}")
    head_dim, heads = spec.model.width // spec.model.heads, spec.model.heads
    kv_heads, mask = heads, "causal"
    if source in ("gqa", "sliding_window"):
        kept = record.phases.get("decode", Phase()).readings.get("cache_bytes_per_token")
        if not isinstance(kept, Quantity):
            return "the records hold no cache, which would tell its heads or its window"
        share = kept.value / (2 * spec.model.width * word * spec.model.layers)  # of plain multi-head attention's
        kv_heads = max(round(heads * share), 1) if source == "gqa" else heads
        mask = f"window:{_window(record, tokens)}" if source == "sliding_window" else mask
    try:
        words = _planned_words(algorithms, tokens, head_dim, heads, kv_heads, mask, fast.size_bytes // word)
    except UserError as error:
        return error.what
    return float(words * batch * word)


def _window(record: CellRecord, tokens: int) -> int:
    """W of a layer of so many tokens: the setting, else its rule, a quarter of the context and at most 256."""
    setting = record.facts.get("settings", {}).get("window")
    return min(int(setting), tokens) if setting else min(max(1, tokens // 4), 256)


def _algorithms(source: str, kernel: str) -> tuple[str, str] | None:
    """Names of the schedules that a kernel follows, forward and backward."""
    if source == "linear":
        return "linear", "linear"
    if source not in ("baseline", "sdpa", "flash", "gqa", "sliding_window"):
        return None
    if "softmax" in kernel:
        return "standard", "autograd_backward"
    return ("flash2", "one_pass") if "flash" in kernel else None


@cache
def _planned_words(
    algorithms: tuple[str, str], tokens: int, head_dim: int, heads: int, kv_heads: int, mask: str, fast_words: int
) -> int:
    """Words of one sequence, forward and backward, with the best tiles."""
    problem = attention_problem(tokens=tokens, head_dim=head_dim, mask=mask, heads=heads, kv_heads=kv_heads)
    forward = _best_words(problem, algorithms[0], "forward", fast_words)
    if algorithms[1] == "linear":
        # two sweeps over q, k, v and the output's gradient, as its kernel makes them, and three gradients
        return forward + 11 * heads * tokens * head_dim
    return forward + _best_words(problem, algorithms[1], "backward", fast_words)


def _best_words(problem: Problem, name: str, direction: Direction, fast_words: int) -> int:
    chosen = [schedule for schedule in all_schedules() if schedule.name == name]
    form: Literal["linear", "attention"] = "linear" if name == "linear" else "attention"
    saved = name == "autograd_backward"
    return plan(problem, fast_words, direction=direction, form=form, saved=saved, schedules=chosen).best.words
