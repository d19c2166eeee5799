"""What the work of one cell is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattention.core.records import Phase, Status
from wattention.core.run_spec import CellSpec
from wattention.mechanisms.base import MECHANISMS, Mechanism, MechanismConfig


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the work of one cell found: its phases and its non-numeric facts."""

    phases: Mapping[str, Phase]
    facts: Mapping[str, Any]
    status: Status = "ok"
    detail: str = ""


def load_choice(cell: CellSpec) -> tuple[Mechanism, MechanismConfig]:
    """Load the cell's mechanism and validate its settings."""
    mechanism = MECHANISMS.load(cell.choice.source)
    return mechanism, mechanism.configure(cell.choice.settings)
