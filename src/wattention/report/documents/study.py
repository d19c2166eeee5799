"""Arrange a re-run study: each published claim with what became of it, the rankings side by side, what ran there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wattention.analysis.claims import Contrast, Judgement, judge
from wattention.analysis.published_study import PublishedStudy
from wattention.analysis.rankings import RankedMechanism, Ranking, rankings
from wattention.core.quantities import Absent, Quantity
from wattention.report.document import Axis, Cell, Column, Document, Figure, Section, Series, Table, Verdict, View
from wattention.report.documents.run import run_document
from wattention.report.units import format_reading, significant
from wattention.report.wording import list_names
from wattention.study.store import StoredRun

_WORDS = {
    "time": "time", "energy": "energy", "power": "power", "memory": "memory", "flop": "FLOPs",
    "latency": "prefill time", "loss": "loss",
}  # fmt: skip


def study_document(study: PublishedStudy, run: StoredRun) -> Document:
    """Return the document of a study judged by one run; the run's own sections follow as detail."""
    judgements = judge(study, run.spec, run.records)
    ranked = rankings(study, run.spec, run.records)
    own = run_document(run)
    return Document(
        title=f"{study.title}, run again: {run.folder.name}",
        answer=f"{_answer(judgements)}\n{own.setting}",
        setting=own.setting,
        verdicts=_verdicts(judgements),
        sections=(
            _claims_section(judgements),
            _ranks_section(ranked),
            _figure_section(study, ranked),
            _behind_section(judgements),
            _ran_section(study),
            *(replace(section, detail=True) for section in own.sections),
        ),
    )


def study_json(study: PublishedStudy, run: StoredRun) -> dict[str, object]:
    """Return the judgements and rankings for programs."""
    return {
        "study": study.citation,
        "run": str(run.folder),
        "claims": [
            {
                "id": one.claim.id,
                "text": one.claim.text,
                "verdict": one.verdict,
                "because": because(one),
                "in_its_own_figures": one.in_its_figures,
                "original_code": dict(one.what_ran),
            }
            for one in judge(study, run.spec, run.records)
        ],
        "rankings": [
            {
                "measure": one.figure.measure,
                "kendall_tau": one.tau,
                "spearman_rho": one.rho,
                "p_value": one.p_value,
                "mechanisms": [
                    {
                        "name": m.name,
                        "published": m.published,
                        "published_rank": m.published_rank,
                        "here": (m.here or Absent(one.why_not or "no number")).to_json(),
                        "rank": m.rank,
                        "ties_with": list(m.ties),
                    }
                    for m in one.mechanisms
                ],
            }
            for one in rankings(study, run.spec, run.records)
        ],
    }


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
        return f"{one.left} and {one.right} have the same {_WORDS[measure]}"
    if exact:
        interval = ""
    elif one.ratio.low is None or one.ratio.high is None:
        interval = " without an interval: one block has no spread"
    else:
        interval = f" [{significant(one.ratio.low, 3)}, {significant(one.ratio.high, 3)}]"
    return f"{one.left} has {ratio}{interval} the {_WORDS[measure]} of {one.right}"


def _answer(judgements: Sequence[Judgement]) -> str:
    counts = Counter(one.verdict for one in judgements)
    parts = [f"{counts[v]} {v}" for v in ("holds", "does not hold", "undecided here") if counts[v]]
    words = ", ".join(parts).replace("holds,", "hold,").replace("does not hold", "do not hold")
    return f"Of {len(judgements)} published claims, with mechanisms that are what their names say: {words}."


def _verdicts(judgements: Sequence[Judgement]) -> tuple[Verdict, ...]:
    questions = {"holds": "Claims that hold", "does not hold": "That do not", "undecided here": "Undecided here"}
    return tuple(
        Verdict(
            question=question,
            answer=str(sum(one.verdict == verdict for one in judgements)),
            detail="; ".join(one.claim.text for one in judgements if one.verdict == verdict) or "none",
            decided=verdict != "undecided here",
        )
        for verdict, question in questions.items()
    )


_CLAIM = Column(key="claim", heading="published claim", help="a statement of the study", numeric=False, prose=True)
_HERE = Column(key="verdict", heading="here", help="judged by this run", numeric=False)


def _claims_section(judgements: Sequence[Judgement]) -> Section:
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


def _behind_section(judgements: Sequence[Judgement]) -> Section:
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


def _ranks_section(ranked: Sequence[Ranking]) -> Section:
    names = [mechanism.name for mechanism in ranked[0].mechanisms]
    columns = (
        Column(key="mechanism", heading="mechanism", help="our name of it", numeric=False),
        *(
            Column(
                key=one.figure.measure,
                heading=f"{_WORDS[one.figure.measure].replace(' time', '')}\npubl. | here",
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


def _figure_section(study: PublishedStudy, ranked: Sequence[Ranking]) -> Section:
    columns = (
        Column(key="measure", heading="measure", help="what is compared", numeric=False),
        Column(key="mechanism", heading="mechanism", help="our name of it", numeric=False),
        Column(key="published", heading="published", help="the number in print; its unit is in the notes"),
        Column(key="published_ratio", heading="over\nbaseline", help="published, over the study's baseline"),
        Column(key="here", heading="here", help="this run"),
        Column(key="here_ratio", heading="over\nbaseline", help="this run, over its baseline"),
    )
    rows, views = [], []
    for one in ranked:
        base = _of(one, study.reference)
        theirs = {m.name: m.published / base.published for m in one.mechanisms}
        ours = {m.name: m.here.value / base.here.value for m in one.mechanisms if m.here and base.here}
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
        if ours:
            views.append(_view(one, study.reference, theirs, ours))
    notes = tuple(f"{one.figure.title}: published as {one.figure.published}; {one.figure.source}." for one in ranked)
    table = Table(columns=columns, rows=tuple(rows))
    figure = Figure(
        key="published-and-here",
        title="Over the baseline, published and here",
        caption=_finding(ranked),
        how="Units and devices differ, so each number is shown over the baseline of its own source.",
        views=tuple(views),
        table=table,
    )
    return Section(
        title="Published figures and ours", table=table, notes=notes, figures=(figure,) if views else (), detail=True
    )


def _view(one: Ranking, reference: str, theirs: dict[str, float], ours: dict[str, float]) -> View:
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


def _ran_section(study: PublishedStudy) -> Section:
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
