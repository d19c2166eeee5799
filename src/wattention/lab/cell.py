"""One cell end to end, in the process it has for itself: gate, training, or one layer over lengths.

Whatever the work raises ends in a record: out of memory, divergence and refusals are results, not crashes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import torch

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.records import CellRecord, Phase, Status
from wattention.core.run_spec import CellSpec
from wattention.lab.training import DivergedError
from wattention.mechanisms.base import MECHANISMS, Mechanism, MechanismConfig
from wattention.meters.environment import record_environment


class ReportProgress(Protocol):
    """Tells the outside how far a cell is."""

    def __call__(
        self, *, phase: str, done: int = 0, total: int = 0, text: str = "", tokens_per_s: float | None = None
    ) -> None:
        """Send one sign of life."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the work of one cell found: its phases and its non-numeric facts."""

    phases: Mapping[str, Phase]
    facts: Mapping[str, Any]
    status: Status = "ok"
    detail: str = ""


def run_cell(cell: CellSpec, *, progress: ReportProgress) -> CellRecord:
    """Run one cell and return its record; only a lost parent or an interrupt escapes."""
    record = CellRecord(
        key=cell.key, order=cell.order, status="ok", started_utc=datetime.now(UTC).isoformat(timespec="seconds")
    )
    torch.set_num_threads(cell.run.threads)
    record = replace(
        record,
        environment=record_environment(device=cell.run.device, seeds={"cell": cell.seed, "order": cell.run.seed}),
    )
    try:
        found = _work_of(cell)(cell, progress)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except BaseException as error:
        traceback.print_exc()
        status, detail = _classify(error)
        return replace(record, status=status, detail=detail)
    return replace(record, status=found.status, detail=found.detail, phases=found.phases, facts=found.facts)


def load_choice(cell: CellSpec) -> tuple[Mechanism, MechanismConfig]:
    """Load the cell's mechanism and validate its settings."""
    mechanism = MECHANISMS.load(cell.choice.source)
    return mechanism, mechanism.configure(cell.choice.settings)


def _work_of(cell: CellSpec) -> Callable[[CellSpec, ReportProgress], Findings]:
    match cell.key.kind:
        case "gate":
            from wattention.lab.gate_cell import run_gate_cell

            return run_gate_cell
        case "train":
            from wattention.lab.train_cell import run_train_cell

            return run_train_cell
        case "lengths":
            from wattention.lab.length_cell import run_length_cell

            return run_length_cell


def _classify(error: BaseException) -> tuple[Status, str]:
    words = f"{type(error).__name__}: {error}"
    if is_out_of_memory(error):
        return "out_of_memory", words
    if isinstance(error, DivergedError):
        return "diverged", str(error)
    if isinstance(error, UnsupportedError):
        return "unsupported", str(error)
    if isinstance(error, UserError):
        return "error", str(error)
    return "error", words


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the device or in main memory (where torch raises a plain RuntimeError)."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
