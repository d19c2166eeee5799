"""What advice compares: mechanisms at one point with their costs, and what is wished for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from wattention.analysis.predict import Costs, Prediction, Workload
from wattention.core.quantities import Absent, Quantity, Reading, predicted

Objective = Literal["time", "energy", "memory"]
Attention = Literal["exact", "exact, other weights", "approximate"]
OBJECTIVES: tuple[Objective, ...] = ("time", "energy", "memory")
TIE = 0.02
"""Relative difference up to which two predictions are equal."""
PARAMETER_BYTES = 4
"""Parameters stay float32, also under autocast."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """What one workload costs at another length or batch: seconds a token and bytes."""

    time_s: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One mechanism: its prediction, or why there is none.

    Args:
        attention: softmax over all earlier tokens with multi-head attention's weights or with others, or neither.
        measured: by ``time`` (s/token), ``energy`` (J/token) and ``memory`` (byte), from matching records.
        lengths, batches: the workload at other lengths and batches, its own included.
    """

    mechanism: str
    attention: Attention
    prediction: Prediction | None = None
    refused: str = ""
    measured: Mapping[Objective, Quantity] = field(default_factory=dict)
    lengths: Mapping[int, Point] = field(default_factory=dict)
    batches: Mapping[int, Point] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Softmax attention over all earlier tokens."""
        return self.attention != "approximate"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for.

    Args:
        memory_bytes: memory that may be used; None where not even the device's is known.
        energy_budget_j, run_tokens: joules that so many tokens may cost.
    """

    workload: Workload = "train"
    by: Objective = "time"
    exact_only: bool = False
    memory_bytes: float | None = None
    energy_budget_j: float | None = None
    run_tokens: float | None = None


def workload_costs(prediction: Prediction, workload: Workload) -> dict[Objective, Reading]:
    """Seconds and joules a token, and bytes, of one workload of a prediction."""
    costs = prediction.costs(workload)
    return {
        "time": _per_token(costs),
        "energy": costs.energy_per_token,
        "memory": prediction.memory.peak if workload == "train" else _inference_bytes(prediction),
    }


def _per_token(costs: Costs) -> Reading:
    if isinstance(costs.time, Absent):
        return costs.time
    return predicted(costs.time.value / costs.tokens, "s/token", costs.time.source)


def _inference_bytes(prediction: Prediction) -> Reading:
    if isinstance(prediction.parameters, Absent) or isinstance(prediction.cache, Absent):
        return Absent("no parameters or no cache is predicted")
    total = prediction.parameters.value * PARAMETER_BYTES + prediction.cache.value
    return predicted(total, "byte", "float32 parameters and the cache at this length; activations not counted")


def costs_of(candidate: Candidate, workload: Workload) -> dict[Objective, Reading]:
    """Costs of a workload; measured ones, which are those of the workload asked for, take the place of predicted."""
    assert candidate.prediction is not None
    return {**workload_costs(candidate.prediction, workload), **candidate.measured}


def cost_of(candidate: Candidate, wish: Wish) -> float:
    """The cost that is ranked by; infinite where it is absent."""
    reading = costs_of(candidate, wish.workload)[wish.by]
    return reading.value if isinstance(reading, Quantity) else float("inf")


def why_not(candidate: Candidate, wish: Wish) -> str:
    """Say why a mechanism may not be used; empty where it may."""
    if candidate.prediction is None:
        return candidate.refused
    if wish.exact_only and not candidate.exact:
        return "approximate, and exact attention was asked for"
    costs = costs_of(candidate, wish.workload)
    memory, energy = costs["memory"], costs["energy"]
    if wish.memory_bytes is not None and isinstance(memory, Quantity) and memory.value > wish.memory_bytes:
        return f"memory: needs {memory.value / wish.memory_bytes:.2g} times what there is"
    if wish.energy_budget_j is not None and wish.run_tokens is not None and isinstance(energy, Quantity):
        least = (energy.value if energy.low is None else energy.low) * wish.run_tokens
        if least > wish.energy_budget_j:
            return f"energy: at least {least / wish.energy_budget_j:.2g} times the budget"
    return ""


def rank(candidates: Iterable[Candidate], wish: Wish) -> list[Candidate]:
    """Order usable candidates, best first; of equal ones exact attention comes first."""
    return sorted(candidates, key=lambda one: (cost_of(one, wish), not one.exact, one.mechanism))


def number_of(reading: Reading) -> float:
    """The value, infinite where it is absent."""
    return reading.value if isinstance(reading, Quantity) else float("inf")
