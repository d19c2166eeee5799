"""Arrange the verdicts of the conformance gate: mechanisms across, clauses down, the numbers below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wattention.report.document import Cell, Column, Document, Section, Table

if TYPE_CHECKING:
    from wattention.lab.conformance.verdict import GateReport, Verdict

_MARKS = {"passed": "ok", "failed": "FAILED", "skipped": "-"}


def gate_document(reports: Sequence[GateReport], *, details: bool = False) -> Document:
    """Return the document of one run of the gate; ``details`` adds what every clause found, not the failures only."""
    failed = [report for report in reports if not report.passed]
    answer = f"{len(reports) - len(failed)} of {len(reports)} mechanisms conform"
    if failed:
        answer += "; not: " + ", ".join(f"{r.mechanism} ({', '.join(r.failed_clauses)})" for r in failed)
    sections = [Section(title="Clauses", table=_clause_table(reports), notes=("- does not apply; see the details",))]
    sections += [
        Section(title=f"{report.mechanism}: {'; '.join(report.shapes)}; seed {report.seed}", notes=notes)
        for report in reports
        if (notes := tuple(_finding(v) for v in report.clauses if details or v.status == "failed"))
    ]
    where = f"{reports[0].device}, {reports[0].dtype}" if reports else "nothing to check"
    return Document(title=f"conformance gate ({where})", answer=answer, sections=tuple(sections))


def _clause_table(reports: Sequence[GateReport]) -> Table:
    names = [verdict.name for verdict in reports[0].clauses] if reports else []
    columns = (
        Column(key="clause", heading="clause", help="what is demanded", numeric=False),
        *(Column(key=r.mechanism, heading=r.mechanism, help="verdict of the gate", numeric=False) for r in reports),
    )
    rows = ((Cell(content=name), *(_mark(report.verdict(name)) for report in reports)) for name in names)
    return Table(columns=columns, rows=tuple(rows))


def _mark(verdict: Verdict) -> Cell:
    return Cell(content=_MARKS[verdict.status], alarm=verdict.status == "failed")


def _finding(verdict: Verdict) -> str:
    return f"{verdict.name} {verdict.status}: {verdict.detail}"
