"""What earlier records of a run decide of a later cell: its learning rate, and the loss it has to reach.

Pure functions over records, so that a resumed run decides what an uninterrupted one would have. Rules:

- A mechanism's learning rate is what its search chose; without a search it is the run's.
- The target ``auto`` is the mean held-out loss of the reference's finished training cells. It is one number for the
  whole run: once a target cell has used it, it stands, whatever blocks are added later.

Why the reference's loss and not, say, the worst of all: it is the quality a reader has today, and does not change with
the company that a mechanism is compared in. A mechanism may then fail to reach it, which is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Phase, Status
from wattention.core.run_spec import CellSpec, RunSpec

LEARNS = ("train", "target")


@dataclass(frozen=True, kw_only=True)
class Undecided:
    """Why a cell cannot run: what it depends on did not come out."""

    status: Status
    reason: str


def decide(cell: CellSpec, records: Sequence[CellRecord]) -> CellSpec | Undecided:
    """Return the cell with all that earlier records decide of it, or why they decide nothing."""
    run = cell.run
    if cell.key.kind not in LEARNS:
        return cell
    if run.tune is not None:
        rate = chosen_rate(cell.key.mechanism, records)
        if isinstance(rate, Undecided):
            return rate
        cell = cell.replace(learning_rate=rate)
    if cell.key.kind == "target" and run.target is not None:
        loss = run.target.loss
        target = automatic_target(run, records) if loss == "auto" else loss
        if isinstance(target, Undecided):
            return target
        cell = cell.replace(target_loss=target)
    return cell


def chosen_rate(mechanism: str, records: Sequence[CellRecord]) -> float | Undecided:
    """Return the learning rate that a mechanism's search chose."""
    searches = [record for record in records if record.key.kind == "tune" and record.key.mechanism == mechanism]
    for record in searches:
        rate = record.facts.get("chosen_learning_rate")
        if record.status == "ok" and isinstance(rate, float):
            return rate
    if searches:
        first = searches[0]
        return Undecided(status=first.status, reason=f"its search for a learning rate ended so: {first.detail}")
    return Undecided(status="error", reason="its search for a learning rate has not run")


def automatic_target(run: RunSpec, records: Sequence[CellRecord]) -> float | Undecided:
    """Return the target of a run that leaves it to the rule ``auto``."""
    for record in records:
        used = record.facts.get("target", {}).get("heldout_bits_per_byte")
        if record.key.kind == "target" and isinstance(used, float):
            return used
    losses = [
        reading.value
        for record in records
        if record.key.kind == "train" and record.key.mechanism == run.reference and record.status == "ok"
        if isinstance(reading := _heldout(record), Quantity)
    ]
    if losses:
        return fmean(losses)
    reason = f"the target is the held-out loss of {run.reference}, and no training cell of it tells one"
    return Undecided(status="error", reason=reason)


def _heldout(record: CellRecord) -> object:
    return record.phases.get("evaluate", Phase()).readings.get("heldout_bits_per_byte")
