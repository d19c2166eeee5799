"""What a training step, a prefill and a decoded token cost on a device, from the operators they run: no measurement.

Callers ask ``study.prediction.predict(query)``, which traces the model and hands the traces to :func:`predict_costs`;
a :class:`Prediction` is all that the command line, the advice and the proof read.

Time of one operator (a roofline, Williams et al. 2009)::

    t = max(FLOPs / rate(dtype, shape),  max over levels of bytes(level) / bandwidth(level))

where a calibrated profile's own timings of that operator stand in for the right side (``analysis/operator_time.py``).
On a CPU operators follow each other and each costs its launch: step = sum(t) + launches x overhead. A GPU starts the
next operator while the last one runs: step = max(sum(t), launches x overhead).

Traffic at a level: the words of the best schedule the I/O planner knows for fused attention and of the COSMA schedule
for matrix products, operands and results once for everything else; the lower bound beside it is the sum of each
operator's own bound, and so no bound on a program that would fuse them.

Energy = idle power x time + e_flop x FLOPs + sum over levels of e_byte x bytes; absent, with what is missing, where the
profile lacks a figure. Its interval takes every figure at the low and the high end of its range.

All quantities have the origin ``predicted``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wattention.core.operators import MemoryKind
from wattention.core.quantities import Quantity, Reading
from wattention.core.specs import ModelSpec

Workload = Literal["train", "prefill", "decode"]
WORKLOADS: tuple[Workload, ...] = ("train", "prefill", "decode")


@dataclass(frozen=True, kw_only=True)
class PredictionQuery:
    """One point: a model with one mechanism on one device.

    Args:
        model: its ``context`` is at least ``tokens``.
        mechanism: a name, an entry point or the path of a Python file.
        settings: the mechanism's settings.
        tokens: length of a training sequence and of the prompt; decoding adds the next token to so many.
        batch: sequences at a time.
        precision: ``bfloat16`` computes under autocast; parameters and optimiser stay float32, as in this project's
            trainer.
        hardware: a profile's name or TOML file.
        run_tokens: tokens of a whole training run, for its totals.
        carbon: kilograms of CO2 equivalent a joule, and who says so (``hardware.carbon.carbon_factor``).
        memory_bytes: memory to use; the device's own when None.
    """

    model: ModelSpec
    mechanism: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokens: int
    batch: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    hardware: str
    run_tokens: float | None = None
    carbon: Quantity | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class LevelTraffic:
    """Bytes across one boundary of the hierarchy: ``inner`` is fast memory, ``outer`` serves it."""

    inner: str
    outer: str
    moved: Reading
    bound: Reading
    attention_moved: Reading
    attention_bound: Reading


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Joules of a workload and where they go; absent parts say what the profile lacks."""

    total: Reading
    idle: Reading
    flop: Reading
    levels: Mapping[str, Reading]
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """One workload on one device: a step of training, a prefill, or one decoded token of every sequence.

    Args:
        time: seconds of it all; ``part_times`` splits the operators' own time (launches apart) by model part.
        bound_by: what most of the time is bound by: ``compute``, ``NAME bandwidth``, ``launches``, ``timings``.
        attention_time: seconds of the attention layers' operators.
        hardware_flop: products executed, masked and recomputed ones included.
    """

    workload: Workload
    tokens: int
    time: Reading
    tokens_per_s: Reading
    part_times: Mapping[str, Reading]
    attention_time: Reading
    launches: int
    launch_time: Reading
    bound_by: str
    hardware_flop: Reading
    traffic: tuple[LevelTraffic, ...]
    energy: Energy
    energy_per_token: Reading
    carbon_per_token: Reading


@dataclass(frozen=True, kw_only=True)
class MemoryPrediction:
    """Live tensors at the peak of the training step, split by kind.

    Args:
        phase: where in the step the peak is, e.g. ``head`` or ``update``.
        capacity: memory of the device (or what was granted).
        fits: the peak is within the capacity; None where the capacity is not known.
        largest_batch: the largest batch that fits, 0 where not even one sequence does; None as ``fits``.
    """

    peak: Reading
    parts: Mapping[MemoryKind, Reading]
    phase: str
    capacity: Reading
    fits: bool | None
    largest_batch: int | None


@dataclass(frozen=True, kw_only=True)
class RunTotals:
    """A training run of ``tokens`` tokens."""

    tokens: float
    steps: float
    time: Reading
    energy: Reading
    carbon: Reading


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """All that is predicted of one point.

    ``marks`` are assumptions and gaps in plain words: every one belongs beside the numbers.
    """

    query: PredictionQuery
    device: str
    calibrated: bool
    train: Costs
    prefill: Costs
    decode: Costs
    memory: MemoryPrediction
    cache: Reading
    parameters: Reading
    model_flop: Reading
    run: RunTotals | None
    marks: tuple[str, ...]

    def costs(self, workload: Workload) -> Costs:
        """The costs of one workload."""
        return {"train": self.train, "prefill": self.prefill, "decode": self.decode}[workload]
