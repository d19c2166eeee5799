"""Rankings of a published study beside this run's: places, agreement, and the figures both ways."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.rankings import RankedMechanism, Ranking
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.figures import published
from wattention.report.sections.claims import MEASURES
from wattention.report.units import significant


def ranks_section(ranked: Sequence[Ranking]) -> Section:
    """Return the places of every mechanism, published and here, and how far the orders agree."""
    names = [mechanism.name for mechanism in ranked[0].mechanisms]
    columns = (
        Column(key="mechanism", heading="mechanism", help="our name of it", numeric=False),
        *(
            Column(
                key=one.figure.measure,
                heading=f"{MEASURES[one.figure.measure].replace(' time', '')}\npubl. | here",
                help=f"place by {one.figure.title}; published: {one.figure.published}",
                numeric=False,
            )
            for one in ranked
        ),
    )
    rows = [(Cell(content=name), *(Cell(content=_places(_of(one, name), one)) for one in ranked)) for name in names]
    rows.append((Cell(content="Kendall's tau"), *(Cell(content=_tau(one)) for one in ranked)))
    absent = dict.fromkeys(one.why_not for one in ranked if one.why_not)
    return Section(
        title="Rankings, published and here",
        table=Table(columns=columns, rows=tuple(rows)),
        notes=(
            "1 is the least; = ties with a neighbour here at 95 %, pair by pair; ~ by an estimate. Tau 1: the same "
            "order, -1: the opposite, 0: unrelated; in brackets the p-value of no association.",
            *(f"- {reason}" for reason in absent),
        ),
    )


def _of(ranking: Ranking, name: str) -> RankedMechanism:
    return next(m for m in ranking.mechanisms if m.name == name)


def _places(one: RankedMechanism, ranking: Ranking) -> str:
    if one.rank is None:
        return f"{one.published_rank:g} | -"
    neighbours = [m.name for m in ranking.mechanisms if m.rank is not None and abs(m.rank - one.rank) <= 1]
    tied = any(name in one.ties for name in neighbours)
    estimated = one.here is not None and one.here.origin == "estimated"
    return f"{one.published_rank:g} | {'~' if estimated else ''}{one.rank:g}{'=' if tied else ''}"


def _tau(one: Ranking) -> str:
    return "-" if one.tau is None or one.p_value is None else f"{one.tau:+.2f} ({significant(one.p_value, 2)})"


def published_section(ranked: Sequence[Ranking], *, reference: str) -> Section:
    """Return the published numbers and ours in a table, and in a figure over each source's own baseline."""
    figure = published.draw(ranked, reference)
    return Section(
        title="Published figures and ours",
        table=published.table(ranked, reference),
        notes=tuple(f"{one.figure.title}: published as {one.figure.published}; {one.figure.source}." for one in ranked),
        figures=() if figure is None else (figure,),
        detail=True,
    )
