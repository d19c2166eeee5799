"""Recall accuracy against length of sequence: what each mechanism forgets, and from where on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.summary import Comparison
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.wording import list_names

SOLVED = 0.95
"""Share of questions from which on a length counts as solved, in the caption."""

Recall = Mapping[str, Mapping[int, Quantity]]


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where fewer than two lengths were asked."""
    del records
    recall: Recall = {} if comparison.quality is None else comparison.quality.recall
    lengths = sorted({length for found in recall.values() for length in found})
    if len(lengths) < 2:
        return None
    place = slots(comparison)
    lines = tuple(_line(label, found, place[label]) for label, found in recall.items())
    view = View(
        label="",
        x=Axis(title="length of sequence, tokens", unit="token", log=True),
        y=Axis(title="questions answered rightly", unit="accuracy", zero=True),
        series=lines,
    )
    return Figure(
        key="recall-lengths",
        title="Recall against length",
        caption=_finding(recall, lengths),
        how="Multi-query associative recall, the same number of pairs at every length. Bars: Wilson's 95 % intervals.",
        views=(view,),
        table=_table(recall, lengths),
    )


def _line(label: str, found: Mapping[int, Quantity], slot: int) -> Series:
    shares = tuple(found.values())
    return Series(
        name=label,
        x=tuple(float(length) for length in found),
        y=tuple(q.value for q in shares),
        low=tuple(q.value if q.low is None else q.low for q in shares),
        high=tuple(q.value if q.high is None else q.high for q in shares),
        mark="both",
        slot=slot,
        hover=tuple(f"{label} at {length} tokens: {q.value:.3f}, {q.source}" for length, q in found.items()),
    )


def _finding(recall: Recall, lengths: Sequence[int]) -> str:
    longest = lengths[-1]
    ends = {label: found[longest].value for label, found in recall.items() if longest in found}
    solved = [label for label, value in ends.items() if value >= SOLVED]
    words = (
        f"At {longest} tokens {list_names(solved)} recall" if solved else f"At {longest} tokens no mechanism recalls"
    )
    words += f" at least {SOLVED:.0%} of the values"
    lowest = min(ends, key=ends.__getitem__)
    return f"{words}; the least is {ends[lowest]:.0%} ({lowest})."


def _table(recall: Recall, lengths: Sequence[int]) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(Column(key=f"recall_{n}", heading=f"{n} tokens", help="share of questions right") for n in lengths),
    )
    rows = tuple(
        (Cell(content=label), *(Cell(content=found.get(n, "")) for n in lengths)) for label, found in recall.items()
    )
    return Table(columns=columns, rows=rows)
