"""What runs have measured of a point that is asked about: the same mechanism, model, shape, precision and device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wattention.analysis.advice_points import Objective
from wattention.analysis.predict import PredictionQuery, Workload
from wattention.analysis.summary import Comparison, compare_records
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec
from wattention.hardware.catalog import profiles_of_device
from wattention.hardware.profile import HardwareProfile

MeasuredCosts = dict[Objective, Quantity]


def why_no_match(spec: RunSpec, records: Sequence[CellRecord], query: PredictionQuery, profile: HardwareProfile) -> str:
    """Say why a run tells nothing of a point, whatever the mechanism; empty where it may."""
    if any(record.simulated for record in records):
        return "its records are simulated"
    if spec.training.precision != query.precision:
        return f"it ran in {spec.training.precision}"
    ours, theirs = query.model.model_dump(), spec.model.model_dump()
    differs = [name for name in ours if name not in ("context", "dropout") and ours[name] != theirs[name]]
    if differs:
        return f"its model differs in {', '.join(differs)}"
    return _device_differs(spec, records, query, profile)


def measured_costs(
    spec: RunSpec, records: Sequence[CellRecord], query: PredictionQuery, workload: Workload
) -> MeasuredCosts:
    """Seconds and joules a token and bytes that a matching run measured; empty where the shape is another."""
    labels = [
        choice.label
        for choice in spec.mechanisms
        if choice.source == query.mechanism and choice.settings == dict(query.settings)
    ]
    if not labels:
        return {}
    comparison = compare_records(spec, records)
    if workload == "train":
        same = (spec.training.tokens or spec.model.context, spec.training.batch) == (query.tokens, query.batch)
        return _training(comparison, labels[0], spec.tokens_per_step) if same else {}
    prompt = spec.model.context - spec.measure.decode_tokens
    if (prompt, 1) != (query.tokens, query.batch):
        return {}
    key, per = ("prefill_s", prompt) if workload == "prefill" else ("decode_s_per_token", 1)
    return _divided(comparison, labels[0], {"time": (key, per, "s/token")})


def _training(comparison: Comparison, label: str, tokens: int) -> MeasuredCosts:
    return _divided(
        comparison,
        label,
        {
            "time": ("step_s", tokens, "s/token"),
            "memory": ("peak_tensor_bytes", 1, "byte"),
            "energy": ("energy_per_token_j", 1, "J/token"),
        },
    )


def _divided(comparison: Comparison, label: str, wanted: dict[Objective, tuple[str, int, str]]) -> MeasuredCosts:
    """Measured quantities, over so many tokens; an estimate is no measurement and is left out."""
    found = next(one for one in comparison.mechanisms if one.label == label).quantities
    out: MeasuredCosts = {}
    for objective, (key, by, unit) in wanted.items():
        reading = found.get(key)
        if isinstance(reading, Quantity) and reading.origin == "measured":
            out[objective] = reading.mapped(partial(_over, by=by), unit=unit, source=reading.source)
    return out


def _over(value: float, *, by: int) -> float:
    return value / by


def _device_differs(
    spec: RunSpec, records: Sequence[CellRecord], query: PredictionQuery, profile: HardwareProfile
) -> str:
    """Say how the devices differ: a GPU is known by its name, a CPU by the host and threads of its calibration."""
    if spec.device != "cpu":
        names = {str(record.environment.get("device", {}).get("name", "")) for record in records}
        key = query.hardware.lower().replace("_", "-")
        same = len(names) == 1 and key in profiles_of_device(next(iter(names)))
        return "" if same else f"it ran on {' and '.join(sorted(names)) or 'a device it does not name'}"
    hosts = sorted({str(record.environment.get("host", {}).get("hostname", "")) for record in records})
    calibrated = profile.conditions.get("host")
    if profile.kind != "cpu" or not calibrated:
        return f"it ran on a CPU of {' and '.join(hosts)}, and {profile.title} is no calibrated profile of that host"
    if hosts != [calibrated]:
        return f"it ran on {' and '.join(hosts)}, and the profile was calibrated on {calibrated}"
    threads = profile.conditions.get("threads", "")
    return "" if threads in ("", str(spec.threads)) else f"it ran with {spec.threads} threads, not {threads}"
