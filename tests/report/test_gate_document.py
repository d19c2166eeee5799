"""The gate's verdicts as a document: every clause a row, failures named and explained."""

import io

from wattention.lab.conformance import GateReport, Verdict
from wattention.report.documents.gate import gate_document
from wattention.report.renderers.terminal import print_document


def _report(name: str, *statuses: str) -> GateReport:
    verdicts = zip(("builds", "causality", "flops"), statuses, strict=True)
    clauses = tuple(Verdict(name=clause, status=status, detail=f"{clause} found") for clause, status in verdicts)
    return GateReport(mechanism=name, device="cpu", dtype="float32", seed=7, shapes=("B=2", "B=1"), clauses=clauses)


GOOD, BAD = _report("good", "passed", "passed", "skipped"), _report("bad", "passed", "failed", "failed")


def test_answer_names_who_failed_and_where() -> None:
    document = gate_document([GOOD, BAD])
    assert document.title == "conformance gate (cpu, float32)"
    assert document.answer == "1 of 2 mechanisms conform; not: bad (causality, flops)"
    table = document.sections[0].table
    assert table is not None
    assert [[cell.content for cell in row] for row in table.rows] == [
        ["builds", "ok", "ok"],
        ["causality", "ok", "FAILED"],
        ["flops", "-", "FAILED"],
    ]


def test_failures_are_explained_and_details_explain_all() -> None:
    assert [section.notes for section in gate_document([GOOD, BAD]).sections[1:]] == [
        ("causality failed: causality found", "flops failed: flops found")
    ]
    every = gate_document([GOOD], details=True).sections[1]
    assert every.title == "good: B=2; B=1; seed 7"
    assert every.notes[2] == "flops skipped: flops found"


def test_printed_text_holds_every_clause() -> None:
    out = io.StringIO()
    print_document(gate_document([GOOD, BAD]), file=out, width=80)
    assert all(word in out.getvalue() for word in ("builds", "causality", "flops", "FAILED"))
