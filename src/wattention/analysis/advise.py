"""Which mechanism to use: predictions and measurements of one point, ranked, with reasons and what would change them.

A mechanism is set aside when it cannot run, does not fit into memory, breaks the energy budget, or is approximate where
exact attention was asked for. The rest is ranked by time, energy or memory; times within :data:`TIE` of the best are
equal, for a roofline does not know better. Measured numbers take the place of predicted ones where a matching record
exists, and are marked.

Exact means softmax attention over all earlier tokens (:class:`Mechanism.exact`). An exact mechanism may still have
other parameters than multi-head attention (grouped-query, latent); quality is not predicted for any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattention.analysis.advice_changes import Change, what_would_change
from wattention.analysis.advice_points import (
    OBJECTIVES,
    TIE,
    Attention,
    Candidate,
    Objective,
    Wish,
    cost_of,
    costs_of,
    number_of,
    rank,
    why_not,
)
from wattention.analysis.crossover import Crossover, find_crossover
from wattention.analysis.pareto import pareto_front
from wattention.analysis.predict import Costs
from wattention.core.quantities import Absent, Quantity, Reading


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One mechanism that may be used.

    Args:
        costs: by objective; absent energies say what the profile lacks.
        ratio: its cost in the objective over the best one's.
        binding: what most of its time is bound by.
        why: its place, in words.
        on_front: no other choice is at least as good in time, memory and energy and better in one.
        budget: whether it keeps the energy budget for certain, perhaps (the interval holds the budget), or not known.
        largest_batch: sequences of a training step that fit; None for other workloads, or where it is not known.
    """

    mechanism: str
    attention: Attention
    costs: Mapping[Objective, Reading]
    ratio: float
    binding: str
    why: str
    on_front: bool
    budget: Literal["kept", "perhaps", "not known", ""] = ""
    largest_batch: int | None = None

    @property
    def exact(self) -> bool:
        """Softmax attention over all earlier tokens."""
        return self.attention != "approximate"

    @property
    def tied(self) -> bool:
        """It is the best, or equal to it as far as a prediction can tell."""
        return self.ratio <= 1 + TIE


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The answer.

    Args:
        choices: best first; empty where nothing may be used.
        set_aside: the others, and why.
        crossovers: by mechanism, from which length on it is faster than the best choice.
        changes: what would change the answer.
        robust: conditions that were tried and leave the answer as it is.
        marks: assumptions and gaps behind the numbers.
    """

    wish: Wish
    choices: tuple[Choice, ...]
    set_aside: Mapping[str, str]
    crossovers: Mapping[str, Crossover]
    changes: tuple[Change, ...]
    robust: tuple[str, ...]
    marks: tuple[str, ...]


def advise(candidates: Sequence[Candidate], wish: Wish) -> Advice:
    """Rank the candidates for a wish; pure, no measurement."""
    set_aside: dict[str, str] = {}
    usable: list[Candidate] = []
    for candidate in candidates:
        reason = why_not(candidate, wish)
        if reason:
            set_aside[candidate.mechanism] = reason
        else:
            usable.append(candidate)
    ranked = rank(usable, wish)
    choices = _choices(ranked, wish)
    best = next((one for one in candidates if choices and one.mechanism == choices[0].mechanism), None)
    changes, robust = what_would_change(candidates, wish) if choices else ((), ())
    predictions = [one.prediction for one in candidates if one.prediction is not None]
    return Advice(
        wish=wish,
        choices=choices,
        set_aside=set_aside,
        crossovers={} if best is None else _crossovers(candidates, best),
        changes=changes,
        robust=robust,
        marks=(*_mixed(usable), *dict.fromkeys(mark for one in predictions for mark in one.marks)),
    )


def _choices(ranked: Sequence[Candidate], wish: Wish) -> tuple[Choice, ...]:
    if not ranked:
        return ()
    best = ranked[0]
    costs = {one.mechanism: costs_of(one, wish.workload) for one in ranked}
    known = [o for o in OBJECTIVES if all(isinstance(costs[one.mechanism][o], Quantity) for one in ranked)]
    front = pareto_front({name: tuple(number_of(c[objective]) for objective in known) for name, c in costs.items()})
    least = cost_of(best, wish)
    return tuple(
        Choice(
            mechanism=one.mechanism,
            attention=one.attention,
            costs=costs[one.mechanism],
            ratio=cost_of(one, wish) / least if least else 1.0,
            binding=_workload(one, wish).bound_by,
            why=_why_here(one, best, wish),
            on_front=one.mechanism in front,
            budget=_budget(costs[one.mechanism]["energy"], wish),
            largest_batch=one.prediction.memory.largest_batch if one.prediction and wish.workload == "train" else None,
        )
        for one in ranked
    )


def _workload(candidate: Candidate, wish: Wish) -> Costs:
    assert candidate.prediction is not None
    return candidate.prediction.costs(wish.workload)


def _budget(energy: Reading, wish: Wish) -> Literal["kept", "perhaps", "not known", ""]:
    if wish.energy_budget_j is None or wish.run_tokens is None:
        return ""
    if isinstance(energy, Absent):
        return "not known"
    most = (energy.value if energy.high is None else energy.high) * wish.run_tokens
    return "kept" if most <= wish.energy_budget_j else "perhaps"


def _why_here(candidate: Candidate, best: Candidate, wish: Wish) -> str:
    """Say why a mechanism stands where it does: what it does more or less of than the best, or what is left to gain."""
    own, first = _workload(candidate, wish), _workload(best, wish)
    share = number_of(own.attention_time) / number_of(own.time)
    if candidate is best:
        return f"attention is {share:.0%} of its time"
    slower = cost_of(candidate, wish) > cost_of(best, wish) * (1 + TIE)
    kind = {"compute": "FLOPs", "launches": "operators started"}.get(own.bound_by, "bytes from main memory")
    ratio = {
        "FLOPs": _ratio(own.hardware_flop, first.hardware_flop),
        "bytes from main memory": _ratio(_moved(own), _moved(first)),
        "operators started": own.launches / first.launches,
    }[kind]
    if slower and ratio > 1 + TIE:
        return f"{ratio:.3g} times the {kind}; attention is {share:.0%} of its time"
    if slower:
        return f"attention is {share:.0%} of its time, at lower rates"
    return f"equal to {best.mechanism} as far as a prediction can tell"


def _ratio(ours: Reading, theirs: Reading) -> float:
    return number_of(ours) / number_of(theirs) if number_of(theirs) and isinstance(ours, Quantity) else 0.0


def _moved(costs: Costs) -> Reading:
    return costs.traffic[-1].moved if costs.traffic else Absent("the profile has one level")


def _crossovers(candidates: Sequence[Candidate], best: Candidate) -> dict[str, Crossover]:
    theirs = {length: point.time_s for length, point in best.lengths.items()}
    return {
        one.mechanism: find_crossover({length: point.time_s for length, point in one.lengths.items()}, theirs)
        for one in candidates
        if one is not best and len(one.lengths) > 1
    }


def _mixed(usable: Sequence[Candidate]) -> tuple[str, ...]:
    measured = [one.mechanism for one in usable if "time" in one.measured]
    if not measured or len(measured) == len(usable):
        return ()
    return (
        f"measured and predicted times are mixed: {', '.join(measured)} measured; a time predicted from data-sheet "
        "rates is a lower limit, so the others look better than they would be",
    )
