"""How fast this machine copies within each level of its memory: the caches that the system reports, and main memory.

All cores copy at once, each back and forth within its share of a working set: half of a cache, or well beyond the
largest one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


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
