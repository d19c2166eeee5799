"""What a trained token's FLOPs are spent on, stacked: MLPs, head, attention, and work beyond the model's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.flop_parts import FlopParts, flop_parts
from wattention.analysis.summary import Comparison
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.units import format_reading
from wattention.report.wording import times

_PARTS = (("mlp", "MLPs", 5), ("head", "head", 2), ("attention", "attention", 1), ("beyond", "beyond the model's", 7))


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where no record tells its FLOPs."""
    found = flop_parts(comparison.spec, records)
    labels = [m.label for m in comparison.mechanisms if m.label in found]
    if not labels:
        return None
    series = tuple(_series(found, labels, *part) for part in _PARTS)
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(Column(key=f"{part}_flop_per_token", heading=words, help="FLOPs per token") for part, words, _ in _PARTS),
    )
    rows = tuple(
        (Cell(content=label), *(Cell(content=getattr(found[label], part) or "") for part, _, _ in _PARTS))
        for label in labels
    )
    known = any(found[label].beyond is not None for label in labels)
    how = "Closed forms of matrix products, forward and backward."
    how += " Beyond the model's: masked pairs that are computed anyway, scores formed again." if known else ""
    return Figure(
        key="flop-parts",
        title="What the FLOPs are spent on",
        caption=_finding(found, labels),
        how=how,
        views=(
            View(
                label="",
                x=Axis(title="mechanism"),
                y=Axis(title="FLOPs per trained token", unit="flop/token", zero=True),
                series=tuple(one for one in series if one.y),
                stacked=True,
            ),
        ),
        table=Table(columns=columns, rows=rows),
    )


def _series(found: Mapping[str, FlopParts], labels: Sequence[str], part: str, words: str, slot: int) -> Series:
    parts = {label: quantity for label in labels if (quantity := getattr(found[label], part)) is not None}
    return Series(
        name=words,
        x=tuple(parts),
        y=tuple(quantity.value for quantity in parts.values()),
        mark="bars",
        slot=slot,
        hover=tuple(f"{label}, {words}: {format_reading(quantity)}" for label, quantity in parts.items()),
    )


def _finding(found: Mapping[str, FlopParts], labels: Sequence[str]) -> str:
    shares = {
        label: f.attention.value / (f.attention.value + f.mlp.value + f.head.value)
        for label in labels
        for f in (found[label],)
    }
    low, high = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    share = f"{100 * shares[low]:.0f} %"
    span = share if low == high else f"{share} ({low}) to {100 * shares[high]:.0f} % ({high})"
    words = f"Attention is {span} of the model's FLOPs"
    excess = {label: b.value / _total(found[label]) for label in labels if (b := found[label].beyond) is not None}
    if excess:
        worst = max(excess, key=excess.__getitem__)
        words += f"; {worst} executes {times(1 + excess[worst])} of what its model asks for"
    return words + "."


def _total(parts: FlopParts) -> float:
    return parts.attention.value + parts.mlp.value + parts.head.value
