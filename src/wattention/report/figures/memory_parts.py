"""What the peak of live tensors is made of: parameters, gradients, optimiser, and what attention decides."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.memory_parts import memory_parts
from wattention.analysis.summary import Comparison
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.units import format_reading, format_value

_PARTS = (
    ("parameters", "parameters", 5),
    ("gradients", "gradients", 2),
    ("optimiser", "optimiser", 3),
    ("attention", "kept by attention", 1),
    ("rest", "other activations, scratch", 4),
)


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where no record tells the peak and the number of parameters."""
    found = memory_parts(records)
    labels = [m.label for m in comparison.mechanisms if m.label in found]
    if not labels:
        return None
    series = tuple(
        Series(
            name=words,
            x=tuple(labels),
            y=tuple(getattr(found[label], part).value for label in labels),
            mark="bars",
            slot=slot,
            hover=tuple(f"{label}, {words}: {format_reading(getattr(found[label], part))}" for label in labels),
        )
        for part, words, slot in _PARTS
    )
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(Column(key=f"{part}_bytes", heading=words.replace(", ", ",\n"), help="") for part, words, _ in _PARTS),
        Column(key="peak_tensor_bytes", heading="peak", help="most bytes of live tensors in one training step"),
    )
    rows = tuple(
        (
            Cell(content=label),
            *(Cell(content=getattr(found[label], part)) for part, _, _ in _PARTS),
            Cell(content=found[label].peak),
        )
        for label in labels
    )
    most = max(labels, key=lambda label: found[label].attention.value)
    least = min(labels, key=lambda label: found[label].attention.value)
    shares = [found[label].attention.value / found[label].peak.value for label in labels]
    span = f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %" if len(labels) > 1 else f"{100 * shares[0]:.0f} %"
    caption = f"What attention keeps for its backward pass is {span} of the peak"
    if most != least:
        kept = [format_value(found[label].attention.value, "byte") for label in (least, most)]
        caption += f": from {kept[0]} ({least}) to {kept[1]} ({most})"
    return Figure(
        key="memory-parts",
        title="What the memory is made of",
        caption=caption + ".",
        how="The peak is measured; parameters, gradients and the two moments of AdamW are counted, 4 bytes a number; "
        "what attention keeps is the closed form that the gate checks.",
        views=(
            View(
                label="",
                x=Axis(title="mechanism"),
                y=Axis(title="bytes at the peak", unit="byte", zero=True),
                series=series,
                stacked=True,
            ),
        ),
        table=Table(columns=columns, rows=rows),
    )
