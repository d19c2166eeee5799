"""Randomised complete blocks: every block runs every mechanism once, in an order drawn from the stored seed.

Why blocks: drift, throttling and neighbours change with time; mechanisms are compared within a block, where they met
the same conditions, so what changes between blocks cancels. For the same reason a block is what a launcher gets: it
runs on one host and one set of devices.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from wattention.core.records import CellKey, CellKind, CellRecord
from wattention.core.run_spec import CellSpec, RunSpec


@dataclass(frozen=True, kw_only=True)
class Block:
    """The unit of distribution: the cells of one block that have no record yet, in running order.

    The run's own gates stand at the head of the first block that is left to run.

    Args:
        folder: of the run the cells belong to, on the machine that keeps the records.
        gates: gate records of the run that are on disk, from whatever host.
    """

    folder: Path
    number: int
    cells: tuple[CellSpec, ...]
    gates: tuple[CellRecord, ...] = ()

    def without(self, done: Iterable[CellRecord]) -> Block:
        """Return what is left of the block when these records are there; gates among them go with it."""
        records = tuple(done)
        keys = {record.key for record in records}
        return replace(
            self,
            cells=tuple(cell for cell in self.cells if cell.key not in keys),
            gates=(*self.gates, *(record for record in records if record.key.kind == "gate")),
        )


def plan_cells(run: RunSpec) -> tuple[CellSpec, ...]:
    """Return all cells of a run in running order: gates, searches for learning rates, blocks, then the target's blocks.

    A mechanism is proved before anything is timed, and its learning rate is found before it trains. Inside a block a
    mechanism's training cell and its length cell stand next to each other. The target's cells, in blocks of an order of
    their own, come last: what the target is may follow from the training cells.
    """
    labels = [choice.label for choice in run.mechanisms]
    cells = [_cell(run, "gate", label, 0, order) for order, label in enumerate(labels)]
    if run.tune is not None:
        shuffled = random.Random(f"{run.seed}/tune").sample(labels, len(labels))
        cells += [_cell(run, "tune", label, 0, order) for order, label in enumerate(shuffled)]
    for block in range(run.blocks):
        shuffled = random.Random(f"{run.seed}/{block}").sample(labels, len(labels))
        for order, label in enumerate(shuffled):
            cells.append(_cell(run, "train", label, block, order))
            if run.measure.lengths:
                cells.append(_cell(run, "lengths", label, block, order))
    for block in range(run.blocks if run.target is not None else 0):
        shuffled = random.Random(f"{run.seed}/target/{block}").sample(labels, len(labels))
        cells += [_cell(run, "target", label, block, order) for order, label in enumerate(shuffled)]
    return tuple(cells)


def missing_cells(run: RunSpec, done: Collection[CellKey]) -> tuple[CellSpec, ...]:
    """Return the cells of the plan that have no record yet, in running order."""
    return tuple(cell for cell in plan_cells(run) if cell.key not in done)


def plan_blocks(
    run: RunSpec, done: Collection[CellKey], *, folder: Path, gates: tuple[CellRecord, ...] = ()
) -> tuple[Block, ...]:
    """Return what is missing of a run, block by block; a block without missing cells is left out."""
    return in_blocks(missing_cells(run, done), folder=folder, gates=gates)


def in_blocks(cells: Iterable[CellSpec], *, folder: Path, gates: Iterable[CellRecord] = ()) -> tuple[Block, ...]:
    """Return cells in running order, block by block."""
    blocks: dict[int, list[CellSpec]] = {}
    for cell in cells:
        blocks.setdefault(cell.key.block, []).append(cell)
    proofs = tuple(gates)
    return tuple(
        Block(folder=folder, number=number, cells=tuple(cells), gates=proofs) for number, cells in blocks.items()
    )


def plan_stages(run: RunSpec) -> tuple[tuple[CellKind, ...], ...]:
    """Return the kinds of cells that may run together, stage by stage: later cells follow from earlier records."""
    measured: tuple[CellKind, ...] = ("train", "lengths")
    first: tuple[tuple[CellKind, ...], ...] = (
        (("gate", *measured),) if run.tune is None else (("gate", "tune"), measured)
    )
    return first if run.target is None else (*first, ("target",))


def gate_of(cell: CellSpec) -> CellSpec:
    """Return the gate that proves a cell's mechanism on the host of its block."""
    return _cell(cell.run, "gate", cell.key.mechanism, cell.key.block, cell.order)


def _cell(run: RunSpec, kind: CellKind, label: str, block: int, order: int) -> CellSpec:
    return CellSpec(run=run, key=CellKey(kind=kind, mechanism=label, block=block), order=order)
