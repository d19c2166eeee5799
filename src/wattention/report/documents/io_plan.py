"""Data movement of one problem: schedules ranked, the limits of every class, what was verified by execution."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.iocomplexity.bounds.base import AlgorithmClass
from wattention.iocomplexity.bounds.literature import SHAPES
from wattention.iocomplexity.execution.execute import Verification
from wattention.iocomplexity.planning.best_bound import BestBound
from wattention.iocomplexity.planning.planner import Plan
from wattention.iocomplexity.problem.attention import Problem
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.sections.schedules import describe_problem, schedule_section
from wattention.report.units import format_value

_BOUND_COLUMNS = (
    Column(key="class", heading="no algorithm of this class", help="what the theorem covers", numeric=False),
    Column(key="words", heading="moves fewer words than", help="the largest bound that covers the class"),
    Column(key="per_pair", heading="per pair", help="words for each unmasked pair"),
    Column(key="name", heading="bound", help="the active theorem", numeric=False),
)
CLASSES = (
    AlgorithmClass.ANY,
    AlgorithmClass.WRITE_ONLY,
    AlgorithmClass.RECOMPUTE,
    AlgorithmClass.ONCE,
    AlgorithmClass.STORED,
)


def plan_document(
    plans: Sequence[Plan], *, word_bytes: int, verifications: Sequence[tuple[str, Problem, Verification]] = ()
) -> Document:
    """The answer of ``wattention io``: schedules ranked, bounds by class, the winner in one sentence."""
    fast_words = plans[0].fast_words
    room = format_value(fast_words * word_bytes, "byte")
    sections = [section for plan in plans for section in _pass_sections(plan, word_bytes)]
    if verifications:
        sections.append(_verification_section(verifications))
    return Document(
        title=f"{describe_problem(plans[0].problem)}; M = {fast_words} words ({room})",
        answer=" ".join(winner_sentence(plan, word_bytes) for plan in plans),
        sections=tuple(sections),
    )


def winner_sentence(plan: Plan, word_bytes: int) -> str:
    """Who wins, with how many bytes, and how far that is from which limit."""
    best = plan.best
    moved = format_value(best.words * word_bytes, "byte")
    sentence = f"{plan.direction.capitalize()}: {best.name} moves the fewest words ({moved})"
    if best.bound is None or best.ratio is None:
        return sentence + "; no bound covers its class."
    active = best.bound.active.bound
    return f"{sentence}, {best.ratio:.2f} times the bound {active.name} ({active.algorithm_class.meaning})."


def _pass_sections(plan: Plan, word_bytes: int) -> list[Section]:
    title = plan.direction.capitalize()
    sections = [schedule_section(title, plan, plan.ranked, word_bytes)]
    if plan.best.bound is not None:
        sections.append(_bounds_section(title, plan))
    return sections


def _bounds_section(title: str, plan: Plan) -> Section:
    bounds = [plan.bound(algorithm_class) for algorithm_class in CLASSES]
    pairs = plan.problem.copies * max(1, plan.problem.pairs)
    rows = tuple(
        (
            Cell(content=one.algorithm_class.meaning),
            Cell(content=one.quantity),
            Cell(content=f"{one.words / pairs:.3g}"),
            Cell(content=one.active.bound.name),
        )
        for one in bounds
    )
    return Section(
        title=f"{title}: limits", table=Table(columns=_BOUND_COLUMNS, rows=rows), notes=_limit_notes(plan, bounds[-1])
    )


def _limit_notes(plan: Plan, narrowest: BestBound) -> tuple[str, ...]:
    excluded = [f"Does not apply: {one.bound.name}: {one.reason}." for one in narrowest.excluded]
    shapes = [
        f"Known shape, without constants: {shape.form} ({shape.source})."
        for shape in SHAPES
        if plan.form == "attention" and plan.direction in shape.direction
    ]
    return (*excluded, *shapes)


def _verification_section(verifications: Sequence[tuple[str, Problem, Verification]]) -> Section:
    notes = []
    for name, problem, one in verifications:
        verdict = "equal" if one.counts_agree else f"DIFFER: {one.execution.count.difference(one.predicted)}"
        notes.append(
            f"{name} executed on {describe_problem(problem)}: counts {verdict} to the prediction "
            f"({one.execution.count.words} words), largest relative error {one.worst_error:.1e} against float64."
        )
    return Section(title="Verified by execution (one copy)", notes=tuple(notes))
