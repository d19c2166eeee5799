"""What can be measured on this machine, what cannot, why, and how to get it.

Every meter of the folder is opened and asked once, on the device of the work; nothing is assumed from names or
versions. The answer is data: the command ``wattention doctor`` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wattention.core.quantities import Absent, Reading
from wattention.meters.base import METERS, Meter, open_meters
from wattention.meters.energy import needed_window_s
from wattention.meters.sensor_class import find_class
from wattention.meters.window import Panel

State = Literal["works", "missing", "other device"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One instrument: whether it works here, what it answers, and the reason or the fix where it does not."""

    name: str
    title: str
    state: State
    answers: tuple[str, ...]
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "title": self.title,
            "state": self.state,
            "answers": list(self.answers),
            "detail": self.detail,
        }


@dataclass(frozen=True, kw_only=True)
class Survey:
    """All instruments of one device, what measuring costs, and the provenance of this machine."""

    device: str
    findings: tuple[Finding, ...]
    own_cost: Mapping[str, Reading]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema": 1,
            "device": self.device,
            "findings": [finding.to_json() for finding in self.findings],
            "own_cost": {name: reading.to_json() for name, reading in self.own_cost.items()},
            "environment": dict(self.environment),
        }


def survey_meters(device: str) -> Survey:
    """Open every meter on a device and ask it once."""
    from wattention.meters.environment import record_environment

    findings = [_ask(METERS.load(name), device) for name in METERS.names()]
    findings.extend(_listen(device))
    findings.append(_estimate())
    names = [f.name for f in findings if f.state == "works" and f.name in METERS.names()]
    with Panel.open(device, names) as panel:
        cost = panel.measure_own_cost()
    return Survey(device=device, findings=tuple(findings), own_cost=cost, environment=record_environment(device=device))


def _ask(meter: Meter, device: str) -> Finding:
    def finding(state: State, detail: str, answers: tuple[str, ...] = meter.readings) -> Finding:
        return Finding(name=meter.name, title=meter.title, state=state, answers=answers, detail=detail)

    missing = meter.available(device)
    if missing is not None:
        other = meter.gpu_only and device == "cpu"
        return finding("other device" if other else "missing", missing.reason)
    opened = open_meters(device, [meter.name])
    try:
        if not opened.opened:
            return finding("missing", _first_reason(opened.absent))
        (one,) = opened.opened
        if meter.name == "energy":
            return finding("works", _counters(one.instrument.facts), _energy_names(one.instrument.facts))
        with Panel(opened).window() as window:
            pass
    finally:
        opened.close()
    answers = tuple(name for name in window.readings if name != "time_s")
    reasons = {name: r.reason for name, r in window.readings.items() if isinstance(r, Absent)}
    lasting = {name: reason for name, reason in reasons.items() if "too short" not in reason and "empty" not in reason}
    partly = "; ".join(f"{name} absent: {reason}" for name, reason in lasting.items())
    return finding("missing" if len(lasting) == len(answers) else "works", partly, answers)


def _first_reason(absent: Mapping[str, Reading]) -> str:
    return next((reading.reason for reading in absent.values() if isinstance(reading, Absent)), "did not open")


def _energy_names(facts: dict[str, Any]) -> tuple[str, ...]:
    return ("energy_j", *(f"energy_{name}_j" for name in facts["domains"]))


def _counters(facts: dict[str, Any]) -> str:
    parts = [
        f"{about['counter']}, {about['device']}, {find_class(about.get('sensor_class')).title}: "
        + (f"steps every {about['step_s']:.2g} s by {about['step_j']:.2g} J" if about["step_s"] else "did not move yet")
        for about in facts["domains"].values()
    ]
    parts.extend(f"no {name}: {reason}" for name, reason in facts["missing"].items())
    return "; ".join([*parts, f"windows of at least {needed_window_s(facts):.3g} s"])


def _listen(device: str) -> list[Finding]:
    """Try the two meters that listen to a dedicated step instead of standing around a window."""
    import torch

    from wattention.meters.kernels import record_kernels
    from wattention.meters.tensor_memory import measure_peak_tensor_bytes

    q = torch.zeros(1, 1, 8, 8, device=device)

    def step() -> None:
        torch.nn.functional.scaled_dot_product_attention(q, q, q)

    peak, kernels = measure_peak_tensor_bytes(step, device=device), record_kernels(step, device=device)
    memory_lost = peak.reason if isinstance(peak, Absent) else ""
    kernels_lost = "" if kernels else "torch.profiler named no attention kernel: this build of torch has no kineto"
    return [
        Finding(
            name="tensor_memory",
            title="peak of live tensors in a dedicated step",
            state="missing" if memory_lost else "works",
            answers=("peak_tensor_bytes",),
            detail=memory_lost,
        ),
        Finding(
            name="kernels",
            title="the kernel that really ran",
            state="missing" if kernels_lost else "works",
            answers=("kernels",),
            detail=kernels_lost or f"here: {', '.join(kernels)}",
        ),
    ]


def _estimate() -> Finding:
    from wattention.meters.estimate import choose_cpu_power

    return Finding(
        name="estimate",
        title="estimated CPU energy, marked so, where nothing can be read",
        state="works",
        answers=("energy_j",),
        detail=f"a model and a range, no instrument; {choose_cpu_power().source}",
    )
