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


def _cell(run: RunSpec, kind: CellKind, label: str, block: int, order: int) -> CellSpec:
    return CellSpec(run=run, key=CellKey(kind=kind, mechanism=label, block=block), order=order)
