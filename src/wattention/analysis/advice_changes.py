"""What would change the answer: other lengths and batches, less memory, another workload or objective, exactness.

Every condition is answered like the question itself. One that names the best choice, or one equal to it, leaves the
answer as it is; that is worth saying too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wattention.analysis.advice_points import (
    OBJECTIVES,
    TIE,
    Candidate,
    Point,
    Wish,
    cost_of,
    costs_of,
    number_of,
    rank,
    why_not,
)
from wattention.analysis.predict import WORKLOADS

NOTHING = "nothing fits"


@dataclass(frozen=True, kw_only=True)
class Change:
    """What would have to differ, and which mechanism would then be the best."""

    condition: str
    best: str


def what_would_change(candidates: Sequence[Candidate], wish: Wish) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Return the conditions that change the answer, with the best choice then, and those that do not."""
    able = [one for one in candidates if one.prediction is not None]
    usable = rank((one for one in able if not why_not(one, wish)), wish)
    if not usable:
        return (), ()
    equal = {one.mechanism for one in usable if cost_of(one, wish) <= cost_of(usable[0], wish) * (1 + TIE)}
    tried = [(what, best) for what, best in _conditions(able, wish) if best]
    changes = tuple(Change(condition=what, best=best) for what, best in tried if best not in equal)
    return changes, tuple(what for what, best in tried if best in equal)


def _conditions(able: Sequence[Candidate], wish: Wish) -> Iterator[tuple[str, str]]:
    """Each condition in words, and the best choice under it; empty where none may be used."""
    allowed = [one for one in able if one.exact or not wish.exact_only]
    own = {one.prediction.query.tokens for one in allowed if one.prediction is not None}
    others = {
        one.mechanism: {length: point for length, point in one.lengths.items() if length not in own} for one in allowed
    }
    yield from _elsewhere("length", others, wish)
    yield from _elsewhere("batch", {one.mechanism: one.batches for one in allowed}, wish)
    for workload in WORKLOADS:
        if workload != wish.workload:
            # what was measured was measured for the workload asked for
            bare = [replace(one, measured={}) for one in able]
            other = replace(wish, workload=workload, energy_budget_j=None)
            yield {"train": "to train", "prefill": "to prefill", "decode": "to decode"}[workload], _best(bare, other)
    for by in OBJECTIVES:
        if by != wish.by:
            yield f"ranked by {by}", _best(able, replace(wish, by=by))
    if not wish.exact_only:
        yield "exact attention only", _best(able, replace(wish, exact_only=True))
    yield from _less_memory(able, wish)


def _elsewhere(what: str, grids: Mapping[str, Mapping[int, Point]], wish: Wish) -> Iterator[tuple[str, str]]:
    """The fastest that fits at each other length or batch."""
    limit = float("inf") if wish.memory_bytes is None else wish.memory_bytes
    for value in sorted({value for grid in grids.values() for value in grid}):
        times = {
            name: grid[value].time_s
            for name, grid in grids.items()
            if value in grid and grid[value].memory_bytes <= limit
        }
        yield f"{what} {value}", min(times, key=lambda name: (times[name], name)) if times else NOTHING


def _best(candidates: Sequence[Candidate], wish: Wish) -> str:
    ranked = rank((one for one in candidates if not why_not(one, wish)), wish)
    return ranked[0].mechanism if ranked and cost_of(ranked[0], wish) < float("inf") else ""


def _less_memory(able: Sequence[Candidate], wish: Wish) -> Iterator[tuple[str, str]]:
    """Going down in memory, the amounts below which the best choice so far no longer fits, and the next best."""
    limit = float("inf") if wish.memory_bytes is None else wish.memory_bytes
    best = _best(able, wish)
    while best:
        need = next(number_of(costs_of(one, wish.workload)["memory"]) for one in able if one.mechanism == best)
        if not need <= limit:
            return
        limit = need * (1 - 1e-9)
        best = _best(able, replace(wish, memory_bytes=limit))
        yield f"less than {need / 2**30:.3g} GiB of memory", best or NOTHING
