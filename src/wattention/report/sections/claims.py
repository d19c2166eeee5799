"""Published claims, judged here: each with its verdict and why, what stood behind it, what ran under the names."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.claims import Contrast, Judgement
from wattention.analysis.published_study import PublishedStudy
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.units import significant

MEASURES = {
    "time": "time", "energy": "energy", "power": "power", "memory": "memory", "flop": "FLOPs",
    "latency": "prefill time", "loss": "loss",
}  # fmt: skip
"""What claims and figures are about, in words."""

_CLAIM = Column(key="claim", heading="published claim", help="a statement of the study", numeric=False, prose=True)
_HERE = Column(key="verdict", heading="here", help="judged by this run", numeric=False)


def claims_section(judgements: Sequence[Judgement]) -> Section:
    """Return each claim with its verdict and the comparison that decided it."""
    because_column = Column(
        key="because", heading="because", help="the comparison the verdict hangs on", numeric=False, prose=True
    )
    rows = tuple((Cell(content=one.claim.text), _verdict(one), Cell(content=because(one))) for one in judgements)
    return Section(
        title="Claims",
        table=Table(columns=(_CLAIM, _HERE, because_column), rows=rows),
        notes=(
            "holds: every comparison behind the claim is decided in its favour (95 %, Holm's correction within the "
            "claim); does not hold: one is decided against it, or two numbers that do not vary are equal; undecided: "
            "the rest.",
        ),
    )


def behind_section(judgements: Sequence[Judgement]) -> Section:
    """Return what the study's own figures and code say of each claim."""
    columns = (
        _CLAIM,
        _HERE,
        Column(key="own", heading="in its\nown figures", help="do the printed figures say so", numeric=False),
        Column(
            key="ran",
            heading="what the study's code ran",
            help="where it is not what the name says",
            numeric=False,
            prose=True,
        ),
    )
    own = {True: "yes", False: "no, or a tie", None: "no figures"}
    rows = tuple(
        (
            Cell(content=one.claim.text),
            _verdict(one),
            Cell(content=own[one.in_its_figures]),
            Cell(content=_ran_words(one)),
        )
        for one in judgements
    )
    return Section(title="What stood behind the claims", table=Table(columns=columns, rows=rows), detail=True)


def _verdict(judgement: Judgement) -> Cell:
    return Cell(content=judgement.verdict, alarm=judgement.verdict == "does not hold")


def _ran_words(judgement: Judgement) -> str:
    if not judgement.claim.mechanisms:
        return f"{len(judgement.what_ran)} of the mechanisms ran something else"
    return "; ".join(f"{name}: {ran}" for name, ran in judgement.what_ran.items()) or "what the names say"


def ran_section(study: PublishedStudy) -> Section:
    """Return what the study's code computed under each mechanism's name."""
    columns = (
        Column(key="mechanism", heading="mechanism", help="our name of it", numeric=False),
        Column(key="published", heading="published as", help="the study's name of it", numeric=False),
        Column(key="ran", heading="what its code computed", help="read in its code", numeric=False, prose=True),
    )
    rows = tuple(
        (Cell(content=m.name), Cell(content=m.published_as), Cell(content=m.ran or "what the name says"))
        for m in study.mechanisms
    )
    return Section(
        title="What ran under these names",
        table=Table(columns=columns, rows=rows),
        notes=(f"{study.title}, {study.citation}; code {study.code}. {study.setup}.",),
    )


def because(judgement: Judgement) -> str:
    """Say in words what a verdict hangs on, with the interval."""
    first = _comparison_words(judgement.decisive, judgement.claim.measure, exact=judgement.exact)
    if judgement.others is None or judgement.claim.other is None:
        return first
    return f"{first}; {_comparison_words(judgement.others, judgement.claim.other, exact=False)}"


def _comparison_words(one: Contrast, measure: str, *, exact: bool) -> str:
    if one.ratio is None:
        return one.why_not
    ratio = f"{significant(one.ratio.value, 3)}x"
    if exact and abs(one.ratio.value - 1) < 1e-9:
        return f"{one.left} and {one.right} have the same {MEASURES[measure]}"
    if exact:
        interval = ""
    elif one.ratio.low is None or one.ratio.high is None:
        interval = " without an interval: one block has no spread"
    else:
        interval = f" [{significant(one.ratio.low, 3)}, {significant(one.ratio.high, 3)}]"
    return f"{one.left} has {ratio}{interval} the {MEASURES[measure]} of {one.right}"
