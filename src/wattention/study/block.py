"""One block on one host: prove, then time; the same body under every launcher.

No number precedes the gate *of the host that makes it*: another processor, another torch, another driver run other
kernels, so a proof does not travel. A host that takes a block first proves the block's mechanisms, unless it has done
so for this run already; a mechanism that fails there is refused there, and its cells end in records that name the
clauses. What other hosts found is neither believed nor held against it.

The run's plan names one gate a mechanism, in block 0. A host that proves again for a later block leaves its gate
records under that block's number; they are raw data beyond the plan, and nothing waits for them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from wattention.core.records import CellRecord
from wattention.core.run_spec import CellSpec
from wattention.study.grid import Block, gate_of

RunCell = Callable[[CellSpec], CellRecord]
"""Runs one cell in a process of its own and returns its record, whatever happens to it."""

Proofs = dict[str, CellRecord]
"""By mechanism: the gate record that this host made for this run."""


def run_block(block: Block, run_cell: RunCell, proofs: Proofs) -> Iterator[CellRecord]:
    """Run a block's cells in order, after the gates that this host still owes; yield each record as it is made.

    Args:
        proofs: what this host has proved of this run; extended while the block runs.
    """
    for cell in (*_owed_gates(block, proofs), *block.cells):
        label = cell.key.mechanism
        if cell.key.kind == "gate":
            proofs[label] = run_cell(cell)
            yield proofs[label]
        elif proofs[label].status != "ok":
            yield refusal(cell, proofs[label])
        else:
            yield run_cell(cell)


def proofs_made_here(records: Iterable[CellRecord]) -> Proofs:
    """Return the gates among the records that were passed or failed on this host.

    A record that names no host (written by hand, or by a fake) is believed.
    """
    here = socket.gethostname()
    return {
        record.key.mechanism: record
        for record in records
        if record.key.kind == "gate" and record.environment.get("host", {}).get("hostname", here) == here
    }


def refusal(cell: CellSpec, gate: CellRecord) -> CellRecord:
    """Return the record of a cell that is not measured because of its gate."""
    return CellRecord(
        key=cell.key,
        order=cell.order,
        status=gate.status,
        detail=f"not measured, because its gate ended so: {gate.detail}",
        started_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={"host": gate.environment["host"]} if "host" in gate.environment else {},
    )


def _owed_gates(block: Block, proofs: Proofs) -> list[CellSpec]:
    planned = {cell.key.mechanism for cell in block.cells if cell.key.kind == "gate"}
    owed = {cell.key.mechanism: cell for cell in block.cells if cell.key.mechanism not in {*planned, *proofs}}
    return [gate_of(cell) for cell in owed.values()]
