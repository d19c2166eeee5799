"""Accesses a second of the cache simulators, on the address trace of a tiled forward pass, beside pycachesim.

pycachesim (https://github.com/RRZE-HPC/pycachesim) is run on a part of the same trace through its scalar interface,
if it is installed; the ratio is of rates measured side by side. The fully associative LRU must do 80 million accesses
a second.

Run: python benchmarks/lru.py
"""

from __future__ import annotations

import importlib
import importlib.util
import time

import numpy as np

from results import write_result
from wattention.iocomplexity.cache import kernels
from wattention.iocomplexity.execution.trace import Trace, record
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.schedules.base import SCHEDULES

SIZE_BYTES, LINE_BYTES, WAYS, WORD_BYTES = 32768, 64, 8, 4
SCALAR_ACCESSES = 200_000


def rates(trace: Trace) -> dict[str, float]:
    """Accesses a second of both simulators, compiled before."""
    lines, none = trace.lines(LINE_BYTES), np.zeros(0, np.int64)
    number, capacity = trace.words * WORD_BYTES // LINE_BYTES + 1, SIZE_BYTES // LINE_BYTES
    runs = {
        "fully associative": lambda part: kernels.fully_associative(part, number, capacity, none),
        f"{WAYS} ways": lambda part: kernels.set_associative(part, capacity // WAYS, WAYS, none),
    }
    out = {}
    for name, run in runs.items():
        run(lines[:1000])
        best = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            run(lines)
            best = min(best, time.perf_counter() - start)
        out[name] = len(lines) / best
    return out


def pycachesim_rate(trace: Trace) -> float | None:
    """Accesses a second of pycachesim with the same set-associative cache; None when it is not installed."""
    if importlib.util.find_spec("cachesim") is None:
        return None
    cachesim = importlib.import_module("cachesim")
    memory = cachesim.MainMemory()
    sets = SIZE_BYTES // LINE_BYTES // WAYS
    level = cachesim.Cache("L1", sets, WAYS, LINE_BYTES, "LRU")
    memory.load_to(level)
    memory.store_from(level)
    simulator = cachesim.CacheSimulator(level, memory)
    part = trace.accesses[:SCALAR_ACCESSES].tolist()
    start = time.perf_counter()
    for access in part:
        (simulator.store if access & 1 else simulator.load)((access >> 1) * WORD_BYTES, length=WORD_BYTES)
    return len(part) / (time.perf_counter() - start)


def main() -> None:
    problem = attention_problem(tokens=256, head_dim=32)
    trace = record(SCHEDULES.load("flash2"), problem, SIZE_BYTES // WORD_BYTES // 2, word_bytes=WORD_BYTES)
    measured = rates(trace)
    peer = pycachesim_rate(trace)
    for name, rate in measured.items():
        beside = f"   {rate / peer:.0f}x pycachesim" if peer else ""
        print(f"{name:<20}{rate / 1e6:8.1f} million accesses / s{beside}")
    skipped = "pycachesim is not installed: skipped"
    print(f"{'pycachesim':<20}{peer / 1e6:8.2f} million accesses / s" if peer else skipped)
    result = {
        "accesses": len(trace.accesses), "accesses_per_s": measured, "pycachesim_accesses_per_s": peer,
    }  # fmt: skip
    write_result("lru", result)


if __name__ == "__main__":
    main()
