"""Time this machine's operators, each at many sizes: what a hardware profile of its own predicts steps from.

Each call is timed by itself, after a short pause in which threads go to sleep as they do between the operators of a
real step, on operands drawn in turn from a pool larger than a core's private caches, at least three sets of them; or,
for what streams weights from main memory, each set once, after as much else was touched as empties every cache. The
median counts, as it does for measured steps. The share of other processes is told, so that a disturbed calibration can
be seen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby, islice
from operator import attrgetter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wattention.lab.calibration.probes import (
    Call,
    Operands,
    Probe,
    attention_probes,
    memory_probes,
    product_probes,
    streamed_probes,
)
from wattention.lab.traces.described import tensors_in
from wattention.lab.traces.operator_facts import OperatorFacts, facts_of_tensors

POOL_BYTES = 2**23
LEAST_COPIES, MOST_COPIES = 3, 32
"""At least three, because what an operator reads was last touched a few operators of its own size ago."""
STREAMED_BYTES = 2**28
"""Of all sets of operands that are read from main memory, and of what is touched before: more than any cache holds."""
LEAST_SAMPLES, MOST_SAMPLES = 3, 25
LEAST_BUDGET_S = 2e-3
LONG_S = 0.1
"""A call that takes so long is timed once more, with the same operands, and no more often."""
AXES = {
    "product": ("batch", "m", "n", "k"),
    "attention": ("copies", "queries", "keys", "head_dim"),
    "memory": ("bytes",),
}


@dataclass(frozen=True, kw_only=True)
class OperatorTiming:
    """One operator at one size."""

    operator: str
    dtype: str
    axes: tuple[str, ...]
    sizes: tuple[float, ...]
    flop: int
    seconds: float
    operands: Operands = "cache"


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the facts of the operators called inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[OperatorFacts] = []
        self.operand_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        facts = facts_of_tensors(func, args, kwargs or {}, out, target="cpu")
        if facts.kind != "view":
            self.seen.append(facts)
            self.operand_bytes = sum(t.nbytes for t in tensors_in((args, tuple((kwargs or {}).values()))))
        return out


def time_operators(
    *, budget_s: float, on_progress: Callable[[float], None] = lambda share: None
) -> list[OperatorTiming]:
    """Time every probe within a budget of seconds, spread evenly.

    What a probe takes beside its samples (to make operands, and the fewest calls of what is slow) is known from those
    before it, and leaves so much less for the samples of the next ones.

    Args:
        budget_s: seconds to spend; probes that would start after it are left out.
        on_progress: told the share that is done.
    """
    probes = list(_interleaved(memory_probes(), product_probes(), attention_probes(), streamed_probes()))
    start, found = time.perf_counter(), []
    beside_s = 0.0
    for done, probe in enumerate(probes):
        begin = time.perf_counter()
        left = budget_s - (begin - start)
        if left <= 0:
            break
        samples_s = max(LEAST_BUDGET_S, left / (len(probes) - done) - beside_s / max(1, done))
        found.append(time_probe(probe, budget_s=samples_s))
        beside_s += max(0.0, time.perf_counter() - begin - samples_s)
        on_progress((done + 1) / len(probes))
    return found


def _interleaved(*groups: Iterable[Probe]) -> Iterator[Probe]:
    """Yield all probes, groups and their dtypes in turn.

    So a slow moment of the machine does not hit one kind alone, and a dtype that is slow throughout is met early.
    """
    lists = [list(part) for group in groups for _, part in groupby(group, key=attrgetter("dtype"))]
    places = [((i + 0.5) / len(group), number, i) for number, group in enumerate(lists) for i in range(len(group))]
    for _, number, index in sorted(places):
        yield lists[number][index]


def time_probe(probe: Probe, *, budget_s: float) -> OperatorTiming:
    """Time one probe; at least :data:`LEAST_SAMPLES` calls, whatever the budget, or one that is long."""
    first = probe.build()
    begin = time.perf_counter()
    with _Watch() as watch:
        first()
    # of what is to come from main memory, a second call would find the operands in a cache
    long = probe.operands == "cache" and time.perf_counter() - begin > LONG_S
    (facts,) = watch.seen
    samples = [_seconds_of(first)] if long else _samples(probe, first, watch.operand_bytes, budget_s)
    axes, sizes = _axes_of(facts)
    return OperatorTiming(
        operator=probe.operator, dtype=probe.dtype, axes=axes, sizes=sizes, flop=facts.flop,
        seconds=statistics.median(samples), operands=probe.operands,
    )  # fmt: skip


def _samples(probe: Probe, first: Call, operand_bytes: int, budget_s: float) -> list[float]:
    """Time calls on as many sets of operands as tell where those of a step lie."""
    streamed = probe.operands == "main"
    pool, most = (STREAMED_BYTES, MOST_SAMPLES) if streamed else (POOL_BYTES, MOST_COPIES)
    copies = max(LEAST_COPIES, min(most, pool // max(1, operand_bytes)))
    calls = [first, *(probe.build() for _ in range(copies - 1))]
    return time_each_once(calls) if streamed else time_calls(calls, budget_s=budget_s)


def _axes_of(facts: OperatorFacts) -> tuple[tuple[str, ...], tuple[float, ...]]:
    if facts.kind == "matmul":
        return AXES["product"], tuple(map(float, facts.dims))
    if facts.kind == "memory":
        return AXES["memory"], (float(facts.read_bytes + facts.written_bytes),)
    batch, heads, _, queries, keys, key_dim, value_dim, _, _ = facts.dims
    return AXES["attention"], (float(batch * heads), float(queries), float(keys), (key_dim + value_dim) / 2)


def time_calls(calls: Sequence[Call], *, budget_s: float) -> list[float]:
    """Time single calls in turn until the budget is spent."""
    rotation = cycle(calls)
    for call in islice(rotation, 2):
        call()
    samples: list[float] = []
    end = time.perf_counter() + budget_s
    while len(samples) < LEAST_SAMPLES or (time.perf_counter() < end and len(samples) < MOST_SAMPLES):
        samples.append(_seconds_of(next(rotation)))
    return samples


def _seconds_of(call: Call) -> float:
    _pause()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_each_once(calls: Sequence[Call]) -> list[float]:
    """Time single calls, none of whose operands is in any cache."""
    torch.ones(STREAMED_BYTES // 4).add_(1)
    return [_seconds_of(call) for call in calls]


def _pause() -> None:
    """Do what Python does between two operators: about ten microseconds of something else."""
    for _ in range(100):
        pass
