"""What the gate answers: one verdict a clause, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one clause: what was got and wanted, or why it was skipped."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """The verdicts of all clauses on one mechanism, on one device in one dtype.

    ``mechanism`` is the record's name; ``seed`` and ``shapes`` let anybody repeat the run.
    """

    mechanism: str
    device: str
    dtype: str
    seed: int
    shapes: tuple[str, ...]
    clauses: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether no clause failed."""
        return not self.failed_clauses

    @property
    def failed_clauses(self) -> tuple[str, ...]:
        """Names of the clauses that failed, in the gate's order."""
        return tuple(v.name for v in self.clauses if v.status == "failed")

    def verdict(self, name: str) -> Verdict:
        """Return the verdict of one clause by name."""
        return next(v for v in self.clauses if v.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; :func:`gate_report_from_json` reads it back."""
        return {
            "mechanism": self.mechanism,
            "device": self.device,
            "dtype": self.dtype,
            "seed": self.seed,
            "shapes": list(self.shapes),
            "passed": self.passed,
            "failed_clauses": list(self.failed_clauses),
            "clauses": [{"name": v.name, "status": v.status, "detail": v.detail} for v in self.clauses],
        }


def gate_report_from_json(data: dict[str, Any]) -> GateReport:
    """Rebuild what :meth:`GateReport.to_json` wrote."""
    return GateReport(
        mechanism=data["mechanism"],
        device=data["device"],
        dtype=data["dtype"],
        seed=data["seed"],
        shapes=tuple(data["shapes"]),
        clauses=tuple(Verdict(**clause) for clause in data["clauses"]),
    )
