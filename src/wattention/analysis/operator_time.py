"""Seconds an operator takes on a device: from the machine's own timings where it was calibrated, else a roofline.

Calibrated. A product or a fused attention kernel interpolates the RATE (FLOP/s) over the logarithms of its sizes
(linear radial basis functions: exact at the measured points, nearly straight between them, held within the measured
range). Everything else interpolates seconds over bytes, both logarithmic, and grows in proportion beyond the last
point. The smallest point is the cost of starting the operator; it is taken off here and told apart as launch overhead.
The products and the attention of a decoding step read weights and a cache of keys, and do little with them, so it
matters where those lie: they were timed with operands in the caches and in main memory, and a step takes the more of
the second the more it reads between two uses of one weight, from half of the largest cache (none) to all of it (all:
what is used in turn and does not fit is gone before it is used again). Query heads that share their keys read them
once.

Data sheet. t = max(FLOPs / peak(dtype), max over levels of bytes / bandwidth): what no kernel can beat, and so an
optimistic time. Rates of products in bfloat16 fall back to float16's, and the other way round; a board before compute
capability 8.0 makes them at float32's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from wattention.analysis.traffic import traffic_of
from wattention.core.errors import UserError
from wattention.core.operators import Operator
from wattention.hardware.profile import HardwareProfile, Number, OperatorTimings

_SAME_RATE = {"bfloat16": "float16", "float16": "bfloat16", "float64": "float32"}
COST_RECORD = "cost-record"
"""A layer known by its closed forms alone: nothing was timed that is like it, so it gets a roofline."""
FEW = 32
"""Rows of a product, or queries, up to which an operator streams its operands."""
STANDS_FOR_OTHERS = "add"
"""The operator whose timings stand for memory-bound ones that were not timed."""


def stands_for(dtype: str, profile: HardwareProfile) -> str:
    """Return the dtype whose rate stands for one that a profile does not tell; empty where none does."""
    capability = profile.compute_capability
    if dtype == "bfloat16" and capability is not None and capability.value < 8.0:
        return "float32"  # no units for bfloat16: products are made in float32
    return _SAME_RATE.get(dtype, "")


class OperatorClock:
    """Tells the seconds of operators on one device, launch overhead apart.

    Args:
        profile: the device.

    Raises:
        UserError: a data-sheet profile without what a roofline needs: a main memory bandwidth.
    """

    def __init__(self, profile: HardwareProfile) -> None:
        self.profile = profile
        self.calibrated = bool(profile.timings)
        self._timings: dict[tuple[str, str, str], OperatorTimings] = {
            (one.operator, one.dtype, one.operands): one for one in profile.timings
        }
        self._curves: dict[tuple[str, str, str], Callable[[Operator], float]] = {}
        largest_cache = profile.fast_levels[-1]
        self._cache_bytes = largest_cache.capacity_bytes * (largest_cache.count.value if largest_cache.count else 1)
        if not self.calibrated and profile.main_memory.bandwidth is None:
            raise UserError(
                f"the profile of {profile.title} lacks the bandwidth of {profile.main_memory.name}",
                wanted='bandwidth = { value = ..., unit = "byte/s", source = "..." } in its last [[levels]]',
                do="add it to a copy of the profile and pass that file, or run wattention calibrate on the machine",
            )

    def share_from_main(self, step_bytes: float) -> float:
        """Return the share of weights and caches that main memory has to bring, in a step that touches so much."""
        half = self._cache_bytes / 2
        return min(1.0, max(0.0, step_bytes / half - 1.0))

    def seconds(self, op: Operator, from_main: float = 0.0) -> tuple[float, str]:
        """Seconds of one call, and what binds them: ``compute``, ``NAME bandwidth``, ``timings``, ``nothing``.

        ``from_main`` is the step's :meth:`share_from_main`; it matters to a calibrated profile.
        """
        if op.kind == "view":
            return 0.0, "nothing"
        if self.calibrated and op.name != COST_RECORD:
            cached = self._measured(op)
            if from_main and _streams(op) and (streamed := self._streamed(op)) is not None:
                return cached + from_main * max(0.0, streamed - cached), "timings"
            return cached, "timings"
        times = {"compute": op.flop / self._peak(op.dtype).value if op.flop else 0.0}
        for inner, outer in zip(self.profile.levels, self.profile.levels[1:], strict=False):
            traffic = traffic_of(op, inner.capacity_bytes)
            if outer.bandwidth is not None and traffic is not None:
                times[f"{outer.name} bandwidth"] = traffic.moved_bytes / outer.bandwidth.value
        bound_by = max(times, key=lambda name: times[name])
        return times[bound_by], bound_by

    def _peak(self, dtype: str) -> Number:
        peak = self.profile.peak.get(dtype) or self.profile.peak.get(stands_for(dtype, self.profile))
        if peak is None:
            known = ", ".join(self.profile.peak) or "none"
            raise UserError(
                f"the profile of {self.profile.title} has no peak rate for {dtype}",
                got=f"rates for: {known}",
                wanted=f'[peak] {dtype} = {{ value = ..., unit = "flop/s", source = "..." }}',
                do="add it to a copy of the profile and pass that file, run wattention calibrate on the machine, "
                "or choose another --precision",
            )
        return peak

    def _measured(self, op: Operator) -> float:
        name = op.name
        if op.kind in ("attention", "attention-backward"):
            window, causal = op.dims[-2:]
            name = f"{op.kind}-{'causal' if causal and not window else 'full'}"
        key = (name, op.dtype, "cache")
        if key not in self._curves:
            self._curves[key] = self._curve(name, op)
        return self._curves[key](op)

    def _streamed(self, op: Operator) -> float | None:
        """Seconds with operands from main memory; None where that was not timed."""
        if op.kind == "attention":
            name, sizes_of = "attention-full", _attention_sizes
        else:
            name, sizes_of = "bmm" if "bmm" in op.name else "mm", _matmul_sizes
        key = (name, op.dtype, "main")
        if key not in self._curves:
            timings, cached = self._timings.get(key), self._timings.get((name, op.dtype, "cache"))
            if timings is None or cached is None:
                return None
            self._curves[key] = _over_sizes(timings, sizes_of, start_s=_least(cached))
        return self._curves[key](op)

    def _curve(self, name: str, op: Operator) -> Callable[[Operator], float]:
        dtypes = (op.dtype, _SAME_RATE.get(op.dtype, "float32"), "float32")
        names: tuple[str, ...] = (name,)
        if op.kind == "matmul":
            names = (name, "bmm" if "bmm" in name else "mm")
        elif op.kind == "memory":
            names = (name, name.removesuffix("_"), f"{name}_", STANDS_FOR_OTHERS)
        found = (self._timings.get((n, d, "cache")) for n in names for d in dtypes)
        timings = next((one for one in found if one is not None), None)
        if timings is None:
            raise UserError(
                f"the profile of {self.profile.title} has no timings of {name} in {op.dtype}",
                got=", ".join(sorted({f"{n} {d}" for n, d, _ in self._timings})),
                do="run wattention calibrate again on the machine",
            )
        if op.kind == "memory":
            return _over_bytes(timings)
        if op.kind == "matmul":
            return _over_sizes(timings, _matmul_sizes)
        shares = op.kind == "attention-backward" and self.profile.kind == "cpu"
        return _over_sizes(timings, _shared_backward_sizes if shares else _attention_sizes)


def _streams(op: Operator) -> bool:
    """Whether an operator reads much and does little with it."""
    if op.kind == "matmul":
        return op.dims[1] <= FEW
    return op.kind == "attention" and op.dims[3] <= FEW


def _least(timings: OperatorTimings) -> float:
    """What the operator costs when it has next to nothing to do."""
    return min(point[-1] for point in timings.points)


def _over_bytes(timings: OperatorTimings) -> Callable[[Operator], float]:
    points = sorted((point[0], point[-1]) for point in timings.points)
    least = points[0][1]
    sizes = [math.log(size) for size, _ in points]
    # strictly positive, so that it has a logarithm: what lies below the start-up cost is noise
    logs = [math.log(max(seconds - least, 1e-9)) for _, seconds in points]

    def seconds(op: Operator) -> float:
        if op.moved_bytes <= points[0][0]:
            return 0.0
        x = math.log(op.moved_bytes)
        if x >= sizes[-1]:
            return math.exp(logs[-1] + x - sizes[-1])
        right = max(1, bisect_left(sizes, x))
        share = (x - sizes[right - 1]) / (sizes[right] - sizes[right - 1])
        return math.exp(logs[right - 1] + share * (logs[right] - logs[right - 1]))

    return seconds


def _matmul_sizes(dims: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """Sizes that the rate depends on, and the work: (batch, m, n, k) and 2 m n k batch."""
    batch, m, n, k = dims
    return (batch, m, n, k), 2.0 * batch * m * n * k


def _attention_sizes(dims: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """Sizes that the rate depends on, and the work: (copies, queries, keys, head dim) and pairs x dims."""
    if len(dims) > 4:
        batch, heads, kv_heads, queries, keys, key_dim, value_dim, window, _ = dims
        copies, dim = batch * (kv_heads if queries <= FEW else heads), (key_dim + value_dim) / 2
        keys = window or keys
    else:
        copies, queries, keys, dim = dims
    return (copies, queries, keys, dim), copies * queries * keys * dim


def _shared_backward_sizes(dims: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """As :func:`_attention_sizes`, for torch's backward kernel on a CPU, where heads that share keys take turns.

    It spreads over threads the key heads alone: 4 query heads on one key head took 4 times one head, 124 ms, where on 4
    key heads of their own they took 94 ms (T = 4096, 2 threads, torch 2.13).
    """
    (copies, queries, keys, dim), work = _attention_sizes(dims)
    shared = dims[1] / dims[2] if len(dims) > 4 else 1.0
    return (copies / shared, queries, keys, dim), work


def _over_sizes(
    timings: OperatorTimings, sizes_of: Callable[[Sequence[float]], Any], start_s: float | None = None
) -> Callable[[Operator], float]:
    from scipy.interpolate import RBFInterpolator

    least = _least(timings) if start_s is None else start_s
    places, rates = [], []
    for *dims, seconds in timings.points:
        if seconds > least * 1.2:
            sizes, work = sizes_of(dims)
            places.append(np.log2(sizes))
            rates.append(math.log(work / (seconds - least)))
    fit: Any = RBFInterpolator(  # type: ignore[no-untyped-call]
        np.array(places), np.array(rates), kernel="linear", degree=0
    )
    low, high = min(rates), max(rates)

    @cache
    def rate(sizes: tuple[float, ...]) -> float:
        return math.exp(min(high, max(low, float(fit(np.log2([sizes]))[0]))))

    def seconds_of(op: Operator) -> float:
        sizes, work = sizes_of(op.dims)
        return work / rate(sizes) if work else 0.0

    return seconds_of
