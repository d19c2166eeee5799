"""Predict one point: trace what the model runs, and ask the analysis what a device needs for it.

Traces, plans and the fits of a profile are kept for the next question; a trace serves every device of its kind.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from wattention.analysis.predict import WORKLOADS, Prediction, PredictionQuery, Workload
from wattention.analysis.predict_costs import TracedModel, predict_costs
from wattention.core.errors import UserError
from wattention.core.operators import StepTrace
from wattention.core.shapes import AttentionShape
from wattention.hardware.catalog import load_profile
from wattention.hardware.profile import HardwareProfile


def predict(query: PredictionQuery) -> Prediction:
    """Return all costs of one point; see :mod:`wattention.analysis.predict`.

    Raises:
        UserError: an unknown mechanism or device, a model that cannot exist, a profile that lacks a level or a rate.
    """
    profile = _profile(query.hardware, _version(query.hardware))
    return predict_costs(query, trace_model(query, profile), profile)


def why_unavailable(query: PredictionQuery) -> str | None:
    """Return why a mechanism cannot run on the device of a query, in its precision, or None where it can.

    Raises:
        UserError: an unknown mechanism or device, settings that the mechanism refuses.
    """
    from wattention.mechanisms.base import MECHANISMS
    from wattention.mechanisms.target import traced_for

    profile, mechanism = _profile(query.hardware, _version(query.hardware)), MECHANISMS.load(query.mechanism)
    shape = AttentionShape(batch=query.batch, tokens=query.tokens, width=query.model.width, heads=query.model.heads)
    kind, capability = _target(profile)
    with traced_for(kind, capability):
        return mechanism.unavailable(kind, query.precision, shape, mechanism.configure(query.settings))


def _target(profile: HardwareProfile) -> tuple[str, float]:
    """The kind of device that kernels are chosen for, and its compute capability; boards from 8.0 on choose alike."""
    from wattention.mechanisms.target import NEWEST

    told = profile.compute_capability
    kind = "cpu" if profile.kind == "cpu" else _KINDS.get(profile.vendor, "cuda")
    return kind, told.value if told is not None and told.value < 8.0 else NEWEST


def _kernels_unknown(kind: str) -> tuple[str, ...]:
    from wattention.mechanisms.target import KERNELS_UNKNOWN

    if kind not in KERNELS_UNKNOWN:
        return ()
    return (f"attention is predicted as explicit products: torch's own kernels for {kind} were not looked at",)


_KINDS = {"NVIDIA": "cuda", "AMD": "rocm", "Apple": "mps", "Google": "xla"}
"""What torch calls the accelerators of a vendor; a vendor that is not here is taken for CUDA."""


def trace_model(query: PredictionQuery, profile: HardwareProfile) -> TracedModel:
    """Trace the three workloads of a query for a device.

    Raises:
        UserError: as the mechanism's own checks, and for lengths that the model does not have.
    """
    from wattention.lab.traces.tracing import trace
    from wattention.mechanisms.base import MECHANISMS

    model, (target, capability) = query.model, _target(profile)
    if not 1 <= query.tokens <= model.context:
        raise UserError(
            "the sequence does not fit the model",
            got=f"{query.tokens} tokens",
            wanted=f"1 to {model.context}, the model's context",
            do="give the model a longer context",
        )
    if query.batch < 1:
        raise UserError("sequences of a batch", got=query.batch, wanted="at least 1")
    mechanism = MECHANISMS.load(query.mechanism)
    config = mechanism.configure(query.settings)
    shape = AttentionShape(batch=query.batch, tokens=query.tokens, width=model.width, heads=model.heads)
    dtype_bytes = 2 if query.precision == "bfloat16" else 4
    cost = mechanism.cost(shape, config, dtype_bytes)
    tokens = query.batch * query.tokens
    dense = (model.forward_flop_per_token + model.backward_flop_per_token) * tokens

    def traced(workload: Workload) -> StepTrace:
        return trace(
            workload,
            model,
            mechanism,
            config,
            tokens=query.tokens,
            batch=query.batch,
            precision=query.precision,
            target=target,
            capability=capability,
        )

    traces = {workload: traced(workload) for workload in WORKLOADS}
    return TracedModel(
        traces=traces,
        parameters=model.parameters(cost.parameters),
        model_flop=dense + model.layers * (cost.forward_flop + cost.backward_flop),
        marks=(*dict.fromkeys(mark for one in traces.values() for mark in one.marks), *_kernels_unknown(target)),
    )


@lru_cache(maxsize=64)
def _profile(name: str, version: Any) -> HardwareProfile:
    return load_profile(name)


def _version(name: str) -> float | None:
    """A file may change between two questions."""
    try:
        return Path(name).stat().st_mtime if name.endswith(".toml") else None
    except OSError:
        return None
