"""A claimed amount of data movement: possible or not, for which algorithms, and what moves fewer words."""

from __future__ import annotations

from wattention.iocomplexity.planning.claim import Claim
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.sections.schedules import describe_problem, ratio_to_bound, schedule_section
from wattention.report.units import format_value


def claim_document(claim: Claim, *, word_bytes: int) -> Document:
    """The answer of ``wattention io claim``: possible or not, for whom, and what moves fewer words."""
    plan = claim.plan
    rows = []
    for verdict in claim.verdicts:
        least = "never" if verdict.least_fast_words is None else f"{verdict.least_fast_words} words"
        ratio = claim.words / verdict.bound.words if verdict.bound.words else None
        rows.append(
            (
                Cell(content=verdict.algorithm_class.meaning),
                Cell(content="not forbidden" if verdict.possible else "impossible", alarm=not verdict.possible),
                Cell(content=verdict.bound.quantity),
                Cell(content=ratio_to_bound(ratio)),
                Cell(content=least),
                Cell(content=verdict.bound.active.bound.name),
            )
        )
    columns = (
        Column(key="class", heading="class of algorithms", help="what the theorem covers", numeric=False),
        Column(key="verdict", heading="claim", help="whether the bound forbids it", numeric=False),
        Column(key="words", heading="limit", help="the largest bound that covers the class"),
        Column(key="ratio", heading="x limit", help="claimed words over the limit"),
        Column(key="least", heading="least M", help="the least fast memory whose bound permits the claim"),
        Column(key="bound", heading="bound", help="the active theorem", numeric=False),
    )
    claimed = format_value(claim.words * word_bytes, "byte")
    fewer = claim.better_schedules
    answer = f"A {plan.direction} that moves {claimed} ({format_value(claim.words, 'word')}): {claim.verdict}"
    return Document(
        title=f"{describe_problem(plan.problem)}; M = {plan.fast_words} words",
        answer=answer,
        sections=(
            Section(title="Limits", table=Table(columns=columns, rows=tuple(rows))),
            schedule_section("Schedules that move fewer words" if fewer else "Best known schedules",
                              plan, fewer or plan.ranked[:5], word_bytes),
        ),
    )  # fmt: skip
