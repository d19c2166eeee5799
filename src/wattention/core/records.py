"""One cell of a comparison ends in exactly one record, whatever happened to it: raw, immutable, append-only.

A *cell* is one mechanism measured once, in a process of its own. Its record holds every raw sample and reading with
its origin; statistics are computed later, from records. Failure is a result: out of memory, divergence, a time limit
or a failed conformance gate each end in a record that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from wattention.core.errors import UserError
from wattention.core.quantities import Reading, reading_from_json

SCHEMA = 1

CellKind = Literal["gate", "tune", "train", "lengths", "target"]
"""What a cell does: prove the mechanism, find its learning rate, train GPT-2 with it, time one layer over sequence
lengths, or train until the held-out loss reaches a target."""

Status = Literal["ok", "gate_failed", "unsupported", "out_of_memory", "diverged", "time_limit", "killed", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, kw_only=True)
class CellKey:
    """Which cell of a run: its kind, the mechanism's label in this run, and its block."""

    kind: CellKind
    mechanism: str
    block: int

    def __str__(self) -> str:
        return f"{self.kind} {self.mechanism} block {self.block}"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Readings of one window, e.g. training, and the raw samples taken inside it.

    Args:
        readings: by name, e.g. ``duration_s``, ``cpu_user_s``, ``energy_j``; an absent one carries its reason.
        samples: raw series by name with the unit in the name, e.g. ``step_s``.
        flags: what disturbed the window, by stated rules, as ``{"kind", "message"}``; empty for a clean one.
    """

    readings: Mapping[str, Reading] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    flags: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class CellRecord:
    """Everything one cell left behind.

    Args:
        order: position of the cell in its block's random order, from 0.
        detail: for a failure, what happened in words.
        facts: non-numeric findings, e.g. the kernels that ran, conformance clauses.
        environment: versions, host, devices, threads, seeds; see ``meters/environment.py``.
        simulated: the readings came from a replay, not from this machine.
    """

    key: CellKey
    order: int
    status: Status
    started_utc: str
    detail: str = ""
    phases: Mapping[str, Phase] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    simulated: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON line of this record."""
        return {
            "schema": SCHEMA,
            "kind": self.key.kind,
            "mechanism": self.key.mechanism,
            "block": self.key.block,
            "order": self.order,
            "status": self.status,
            "detail": self.detail,
            "started_utc": self.started_utc,
            "simulated": self.simulated,
            "phases": {name: _phase_to_json(phase) for name, phase in self.phases.items()},
            "facts": dict(self.facts),
            "environment": dict(self.environment),
        }


def _phase_to_json(phase: Phase) -> dict[str, Any]:
    return {
        "readings": {name: reading.to_json() for name, reading in phase.readings.items()},
        "samples": {name: list(values) for name, values in phase.samples.items()},
        "flags": [dict(flag) for flag in phase.flags],
    }


def record_from_json(data: Mapping[str, Any]) -> CellRecord:
    """Rebuild a record from its JSON line.

    Raises:
        UserError: the line was written by a newer version, or is not a record.
    """
    schema = data.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise UserError("not a wattention record", got=f"schema {schema!r}", wanted=f"schema 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise UserError(
            "the record was written by a newer wattention",
            got=f"schema {schema}",
            wanted=f"schema 1 to {SCHEMA}",
            do="upgrade wattention to read it",
        )
    try:
        return CellRecord(
            key=CellKey(kind=data["kind"], mechanism=data["mechanism"], block=data["block"]),
            order=data["order"],
            status=data["status"],
            detail=data["detail"],
            started_utc=data["started_utc"],
            simulated=data["simulated"],
            phases={name: _phase_from_json(phase) for name, phase in data["phases"].items()},
            facts=data["facts"],
            environment=data["environment"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError("a damaged record", got=f"{type(error).__name__}: {error}") from error


def _phase_from_json(data: Mapping[str, Any]) -> Phase:
    return Phase(
        readings={name: reading_from_json(reading) for name, reading in data["readings"].items()},
        samples={name: tuple(values) for name, values in data["samples"].items()},
        flags=tuple(data["flags"]),
    )
