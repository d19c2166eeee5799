"""Time per step over the reference's, block by block: how far every single pair agrees with the ratio in the table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wattention.analysis.differences import block_ratios
from wattention.analysis.summary import Comparison
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import significant
from wattention.report.wording import list_names


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where no block has both the reference and another mechanism."""
    reference = comparison.reference
    ratios = {label: found for label, found in block_ratios(records, "step_s", reference).items() if found}
    if not ratios:
        return None
    place = slots(comparison)
    labels = [m.label for m in comparison.mechanisms if m.label in ratios]
    points = tuple(
        Series(
            name=label,
            x=(label,) * len(ratios[label]),
            y=tuple(q.value for q in ratios[label].values()),
            slot=place[label],
            hover=tuple(f"{label}, block {b + 1}: {significant(q.value)}x" for b, q in ratios[label].items()),
        )
        for label in labels
    )
    one = Series(name=reference, x=tuple(labels), y=(1.0,) * len(labels), mark="line", quiet=True)
    view = View(
        label="",
        x=Axis(title="mechanism"),
        y=Axis(title=f"time per step over {reference}'s", unit="ratio", log=True),
        series=(one, *points),
    )
    blocks = sorted({block for found in ratios.values() for block in found})
    columns = (
        Column(key="block", heading="block", help="randomised block", numeric=False),
        *(Column(key=label, heading=label, help=f"time per step of {label} over {reference}'s") for label in labels),
    )
    rows = tuple(
        (Cell(content=str(block + 1)), *(Cell(content=ratios[label].get(block, "")) for label in labels))
        for block in blocks
    )
    return Figure(
        key="block-differences",
        title="Differences within blocks",
        caption=_finding(comparison, labels, {label: [q.value for q in ratios[label].values()] for label in labels}),
        how=f"One point a block: time per training step over {reference}'s in the same block, on a log axis.",
        views=(view,),
        table=Table(columns=columns, rows=rows),
    )


def _finding(comparison: Comparison, labels: Sequence[str], values: dict[str, list[float]]) -> str:
    """Say what is proved as the table says it, and of the ties what the points show."""
    reference = comparison.reference
    ties = {m.label for m in comparison.mechanisms if m.time_ratio is None or m.time_ratio.tie}
    faster = [label for label in labels if label not in ties and sum(map(math.log, values[label])) < 0]
    slower = [label for label in labels if label not in ties and label not in faster]
    alike = [label for label in labels if label in ties and (max(values[label]) < 1 or min(values[label]) > 1)]
    mixed = [label for label in labels if label in ties and label not in alike]
    parts = []
    if faster:
        parts.append(f"{list_names(faster)} took less time than {reference}")
    if slower:
        parts.append(f"{list_names(slower)} took more time than {reference}")
    if alike:
        words = "ties" if len(alike) == 1 else "tie"
        parts.append(f"{list_names(alike)} {words}: all blocks point one way, too few to prove it")
    if mixed:
        parts.append(f"{list_names(mixed)} {'ties' if len(mixed) == 1 else 'tie'}: blocks point both ways")
    spread = max(max(v) / min(v) for v in values.values()) - 1
    return f"{'; '.join(parts)}. Blocks disagree about a ratio by at most {100 * spread:.1f} %."
