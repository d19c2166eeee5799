"""Published numbers and ours, each over the baseline of its own source, because units and devices differ."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.rankings import Ranking
from wattention.core.quantities import Absent, Quantity
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.units import format_reading
from wattention.report.wording import list_names

_COLUMNS = (
    Column(key="measure", heading="measure", help="what is compared", numeric=False),
    Column(key="mechanism", heading="mechanism", help="our name of it", numeric=False),
    Column(key="published", heading="published", help="the number in print; its unit is in the notes"),
    Column(key="published_ratio", heading="over\nbaseline", help="published, over the study's baseline"),
    Column(key="here", heading="here", help="this run"),
    Column(key="here_ratio", heading="over\nbaseline", help="this run, over its baseline"),
)


def draw(ranked: Sequence[Ranking], reference: str) -> Figure | None:
    """Return the figure, one view a measure; None where this run has no number to set beside the published ones."""
    views = tuple(_view(one, reference) for one in ranked if _ours(one, reference))
    if not views:
        return None
    return Figure(
        key="published-and-here",
        title="Over the baseline, published and here",
        caption=_finding(ranked),
        how="Units and devices differ, so each number is shown over the baseline of its own source.",
        views=views,
        table=table(ranked, reference),
    )


def table(ranked: Sequence[Ranking], reference: str) -> Table:
    """Return the numbers themselves and their ratios, a row for each measure and mechanism."""
    rows: list[tuple[Cell, ...]] = []
    for one in ranked:
        theirs, ours = _theirs(one, reference), _ours(one, reference)
        rows += [
            (
                Cell(content=one.figure.title),
                Cell(content=m.name),
                Cell(content=f"{m.published:g}"),
                Cell(content=f"{theirs[m.name]:.2f}"),
                Cell(content=m.here or Absent(one.why_not or "no number")),
                Cell(content=f"{ours[m.name]:.2f}" if m.name in ours else "-"),
            )
            for m in one.mechanisms
        ]
    return Table(columns=_COLUMNS, rows=tuple(rows))


def _theirs(one: Ranking, reference: str) -> dict[str, float]:
    base = next(m.published for m in one.mechanisms if m.name == reference)
    return {m.name: m.published / base for m in one.mechanisms}


def _ours(one: Ranking, reference: str) -> dict[str, float]:
    base = next(m.here for m in one.mechanisms if m.name == reference)
    return {m.name: m.here.value / base.value for m in one.mechanisms if m.here and base}


def _view(one: Ranking, reference: str) -> View:
    theirs, ours = _theirs(one, reference), _ours(one, reference)
    here = {m.name: m.here for m in one.mechanisms}
    return View(
        label=one.figure.title,
        x=Axis(title="mechanism"),
        y=Axis(title=f"{one.figure.title} over {reference}", unit="ratio", zero=True),
        series=(
            _bars("published", theirs, {n: f"{n}, published: {v:.2f} of {reference}" for n, v in theirs.items()}, 0),
            _bars(
                "here", ours, {n: f"{n}, here: {v:.2f} of {reference}; {_said(here[n])}" for n, v in ours.items()}, 2
            ),
        ),
    )


def _said(reading: Quantity | None) -> str:
    return "" if reading is None else format_reading(reading)


def _bars(name: str, values: dict[str, float], hover: dict[str, str], slot: int) -> Series:
    return Series(
        name=name, x=tuple(values), y=tuple(values.values()), mark="bars", slot=slot, hover=tuple(hover.values())
    )


def _finding(ranked: Sequence[Ranking]) -> str:
    known = [one for one in ranked if one.tau is not None]
    if not known:
        return "Nothing can be ranked here."
    alike = [one.figure.title for one in known if one.tau and one.tau > 0 and one.p_value and one.p_value < 0.05]
    apart = [one.figure.title for one in known if one.figure.title not in alike]
    parts = [f"The published order of {list_names(alike)} is found again here"] if alike else []
    parts += [f"{'that' if alike else 'The published order'} of {list_names(apart)} is not"] if apart else []
    return f"{'; '.join(parts)} (Kendall's tau, 5 %)."
