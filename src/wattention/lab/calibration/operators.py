"""Time this machine's operators, memory levels and launches: the raw material of a hardware profile of its own.

Each call is timed by itself, after a short pause in which threads go to sleep as they do between the operators of a
real step, on operands drawn in turn from a pool larger than a core's private caches, at least three sets of them. The
median counts, as it does for measured steps. The share of other processes is told, so that a disturbed calibration can
be seen.

Launch overhead: training steps of a model so small that nothing else costs, one for every built-in mechanism, divided
by the number of operators that their traces count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
from torch.utils._python_dispatch import TorchDispatchMode

from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.lab.calibration.probes import Call, Probe, attention_probes, memory_probes, product_probes
from wattention.lab.traces.described import tensors_in
from wattention.lab.traces.operator_facts import OperatorFacts, facts_of_tensors
from wattention.lab.traces.tracing import trace
from wattention.lab.training import Trainer
from wattention.mechanisms.base import MECHANISMS
from wattention.model.gpt2 import GPT2

POOL_BYTES = 2**23
LEAST_COPIES, MOST_COPIES = 3, 32
"""At least three, because what an operator reads was last touched a few operators of its own size ago."""
LEAST_SAMPLES, MOST_SAMPLES = 3, 25
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
    """Time every probe within a budget of seconds, spread evenly; the first size of each operator comes first.

    Args:
        budget_s: seconds to spend; probes that would start after it are left out.
        on_progress: told the share that is done.
    """
    probes = list(_interleaved(memory_probes(), product_probes(), attention_probes()))
    start, found = time.perf_counter(), []
    for done, probe in enumerate(probes):
        left = budget_s - (time.perf_counter() - start)
        if left <= 0:
            break
        found.append(time_probe(probe, budget_s=max(2e-3, 0.8 * left / (len(probes) - done))))
        on_progress((done + 1) / len(probes))
    return found


def _interleaved(*groups: Iterable[Probe]) -> Iterator[Probe]:
    """Yield all probes, groups in turn, so that a slow moment of the machine does not hit one kind alone."""
    lists = [list(group) for group in groups]
    places = [((i + 0.5) / len(group), number, i) for number, group in enumerate(lists) for i in range(len(group))]
    for _, number, index in sorted(places):
        yield lists[number][index]


def time_probe(probe: Probe, *, budget_s: float) -> OperatorTiming:
    """Time one probe; at least :data:`LEAST_SAMPLES` calls, whatever the budget."""
    first = probe.build()
    with _Watch() as watch:
        first()
    (facts,) = watch.seen
    copies = max(LEAST_COPIES, min(MOST_COPIES, POOL_BYTES // max(1, watch.operand_bytes)))
    calls = [first, *(probe.build() for _ in range(copies - 1))]
    seconds = statistics.median(time_calls(calls, budget_s=budget_s))
    axes, sizes = _axes_of(facts)
    return OperatorTiming(
        operator=probe.operator, dtype=probe.dtype, axes=axes, sizes=sizes, flop=facts.flop, seconds=seconds
    )


def _axes_of(facts: OperatorFacts) -> tuple[tuple[str, ...], tuple[float, ...]]:
    if facts.kind == "matmul":
        return AXES["product"], tuple(map(float, facts.dims))
    if facts.kind == "memory":
        return AXES["memory"], (float(facts.read_bytes + facts.written_bytes),)
    batch, heads, _, queries, keys, key_dim, value_dim, _, _ = facts.dims
    return AXES["attention"], (float(batch * heads), float(queries), float(keys), (key_dim + value_dim) / 2)


def time_calls(calls: Sequence[Call], *, budget_s: float) -> list[float]:
    """Time single calls in turn until the budget is spent."""
    clock = time.perf_counter
    rotation = cycle(calls)
    for call in islice(rotation, 2):
        call()
    samples: list[float] = []
    end = clock() + budget_s
    while len(samples) < LEAST_SAMPLES or (clock() < end and len(samples) < MOST_SAMPLES):
        call = next(rotation)
        _pause()
        start = clock()
        call()
        samples.append(clock() - start)
    return samples


def _pause() -> None:
    """Do what Python does between two operators: about ten microseconds of something else."""
    for _ in range(100):
        pass


# --- launches ---------------------------------------------------------------------------------------------------------


class _TinyBatches:
    """Batches that cost nothing to draw."""

    def train(self, index: int) -> Any:
        """Return 8 tokens, all zero."""
        from wattention.data.batches import Batch

        tokens = np.zeros((1, 8), dtype=np.int64)
        return Batch(inputs=tokens, targets=tokens, target_bytes=None)


def time_launch(*, steps: int = 9) -> tuple[float, int]:
    """Return the seconds of one operator that has nothing to do, and over how many the average was taken."""
    model = ModelSpec(layers=2, heads=2, width=8, mlp_width=32, context=8, vocabulary=8)
    spec = TrainingSpec(batch=1, tokens=8, steps=1000)
    seconds, launches = 0.0, 0
    for name in MECHANISMS.names():
        mechanism = MECHANISMS.load(name)
        config = mechanism.config()
        trainer = Trainer(GPT2(model, mechanism, config), _TinyBatches(), spec)  # type: ignore[arg-type]
        for _ in range(3):
            trainer.step()
        samples = []
        for _ in range(steps):
            start = time.perf_counter()
            trainer.step()
            samples.append(time.perf_counter() - start)
        seconds += statistics.median(samples)
        launches += trace("train", model, mechanism, config, tokens=8, batch=1, precision="float32").launches
    return seconds / launches, launches


# --- memory levels ----------------------------------------------------------------------------------------------------


def copy_bandwidth(working_set_bytes: int, *, threads: int, seconds: float = 0.3) -> float:
    """Bytes read and written a second by all threads, each copying back and forth within its share of a working set."""
    from concurrent.futures import ThreadPoolExecutor

    kernel = _copy_kernel()
    words = max(64, working_set_bytes // 16 // threads)  # two arrays of float64 a thread
    arrays = [(np.ones(words), np.zeros(words)) for _ in range(threads)]
    for pair in arrays[:1]:
        kernel(*pair, 1)
    rounds = max(1, int(2e7 // words))
    rates: list[float] = []
    with ThreadPoolExecutor(threads) as pool:
        end = time.perf_counter() + seconds
        while not rates or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(lambda pair: kernel(*pair, rounds), arrays))
            rates.append(threads * rounds * words * 16 / (time.perf_counter() - start))
    return max(rates)  # a neighbour can only ever take some away


def _copy_kernel() -> Callable[..., None]:
    from numba import njit

    global _KERNEL  # noqa: PLW0603  compiled once, when first asked for
    if _KERNEL is None:

        @njit(nogil=True, cache=False)
        def kernel(a, b, rounds):  # type: ignore[no-untyped-def]
            for r in range(rounds):
                source, target = (a, b) if r % 2 == 0 else (b, a)
                for i in range(len(source)):
                    target[i] = source[i] + 1.0

        _KERNEL = kernel
    kernel_of: Callable[..., None] = _KERNEL
    return kernel_of


_KERNEL: Any = None


@dataclass(frozen=True, kw_only=True)
class CacheLevel:
    """One level of the hierarchy: what one holder of it has, and the copy rate of all cores within it."""

    name: str
    holder: str
    capacity_bytes: int
    count: int
    bandwidth_bytes_s: float


def measure_levels(caches: Sequence[dict[str, Any]], memory_bytes: int, *, threads: int) -> list[CacheLevel]:
    """Measure the copy rate of each cache that the system reports, and of main memory, from the inside out.

    Args:
        caches: as the provenance of a run lists them.
        memory_bytes: of the whole machine.
        threads: cores that copy at once.
    """
    found: list[CacheLevel] = []
    for cache in caches:
        capacity = _bytes_of(str(cache.get("size", "")))
        if cache.get("type") not in ("Data", "Unified") or capacity is None:
            continue
        shared = "," in str(cache.get("shared_cpu_list")) or "-" in str(cache.get("shared_cpu_list"))
        holders = 1 if shared else threads
        rate = copy_bandwidth(capacity * holders // 2, threads=threads)
        rate = min([rate, *(level.bandwidth_bytes_s for level in found)])  # a level is no faster than the one inside it
        holder = "device" if shared else "core"
        found.append(
            CacheLevel(
                name=f"L{cache['level']}", holder=holder, capacity_bytes=capacity, count=holders, bandwidth_bytes_s=rate
            )
        )
    largest = max((level.capacity_bytes * level.count for level in found), default=2**24)
    rate = copy_bandwidth(min(8 * largest, memory_bytes // 8), threads=threads)
    rate = min([rate, *(level.bandwidth_bytes_s for level in found)])
    main = CacheLevel(name="main", holder="device", capacity_bytes=memory_bytes, count=1, bandwidth_bytes_s=rate)
    return [*found, main]


def _bytes_of(text: str) -> int | None:
    """Read a size as the kernel writes it, e.g. ``32K``."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units and text[:-1].isdigit() else None
