"""Arrange a re-run study: each published claim with what became of it, the rankings side by side, what ran there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from wattention.analysis.claims import Judgement, judge
from wattention.analysis.published_study import PublishedStudy
from wattention.analysis.rankings import rankings
from wattention.report.document import Document, Verdict
from wattention.report.documents.run import run_document
from wattention.report.sections.claims import behind_section, claims_section, ran_section
from wattention.report.sections.rankings import published_section, ranks_section
from wattention.study.store import StoredRun


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
            claims_section(judgements),
            ranks_section(ranked),
            published_section(ranked, reference=study.reference),
            behind_section(judgements),
            ran_section(study),
            *(replace(section, detail=True) for section in own.sections),
        ),
    )


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
