"""Randomised complete blocks: every block runs every mechanism once, in an order drawn from the stored seed.

Why blocks: drift, throttling and neighbours change with time; mechanisms are compared within a block, where they met
the same conditions, so what changes between blocks cancels.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from wattention.core.records import CellKey, CellKind
from wattention.core.run_spec import CellSpec, RunSpec


def plan_cells(run: RunSpec) -> tuple[CellSpec, ...]:
    """Return all cells of a run in running order: the gates first, then the blocks.

    A mechanism is proved before anything is timed. Inside a block a mechanism's training cell and its length cell
    stand next to each other.
    """
    labels = [choice.label for choice in run.mechanisms]
    cells = [_cell(run, "gate", label, 0, order) for order, label in enumerate(labels)]
    for block in range(run.blocks):
        shuffled = random.Random(f"{run.seed}/{block}").sample(labels, len(labels))
        for order, label in enumerate(shuffled):
            cells.append(_cell(run, "train", label, block, order))
            if run.measure.lengths:
                cells.append(_cell(run, "lengths", label, block, order))
    return tuple(cells)


def missing_cells(run: RunSpec, done: Collection[CellKey]) -> tuple[CellSpec, ...]:
    """Return the cells of the plan that have no record yet, in running order."""
    return tuple(cell for cell in plan_cells(run) if cell.key not in done)


def _cell(run: RunSpec, kind: CellKind, label: str, block: int, order: int) -> CellSpec:
    return CellSpec(run=run, key=CellKey(kind=kind, mechanism=label, block=block), order=order)
