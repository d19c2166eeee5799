"""Data movement level by level on one device: each boundary planned for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.core.quantities import Absent
from wattention.iocomplexity.planning.levels import LevelPlan
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.schedules.base import Direction
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.sections.schedules import bound_of, describe_problem, predicted_bytes, ratio_to_bound


def levels_document(
    problem: Problem, device: str, plans: Mapping[Direction, Sequence[LevelPlan]], *, word_bytes: int
) -> Document:
    """The answer of ``wattention io --levels``.

    Args:
        device: its title.
        plans: by pass.
    """
    return Document(
        title=describe_problem(problem),
        answer="Each boundary is planned for itself: the level is fast memory, everything outside it is slow.",
        sections=tuple(
            _levels_section(f"{device}: {direction}", found, word_bytes=word_bytes)
            for direction, found in plans.items()
        ),
    )


def _levels_section(device: str, plans: Sequence[LevelPlan], *, word_bytes: int) -> Section:
    """One row a boundary of a device: which schedule moves the fewest words into that level."""
    columns = (
        Column(key="level", heading="fast memory", help="level and who owns it", numeric=False),
        Column(key="words", heading="M", help="words one owner can use"),
        Column(key="best", heading="best schedule", help="fewest words", numeric=False),
        Column(key="bytes", heading="bytes moved", help="into and out of the level"),
        Column(key="ratio", heading="x bound", help="words over the bound of its class"),
        Column(key="class", heading="bound (class)", help="the bound the ratio is taken to", numeric=False),
    )
    rows = []
    for one in plans:
        if one.plan is None:
            nothing = Cell(content=Absent(one.reason or "nothing fits"))
            rows.append((Cell(content=_level(one)), Cell(content=str(one.fast_words)), *[nothing] * 4))
            continue
        best = one.plan.best
        rows.append(
            (
                Cell(content=_level(one)),
                Cell(content=str(one.fast_words)),
                Cell(content=best.name),
                Cell(content=predicted_bytes(best.words * word_bytes)),
                Cell(content=ratio_to_bound(best.ratio)),
                Cell(content=bound_of(best)),
            )
        )
    notes = tuple(f"{one.level.name}: {one.reason}" for one in plans if one.plan is None)
    return Section(title=f"Level by level on {device}", table=Table(columns=columns, rows=tuple(rows)), notes=notes)


def _level(one: LevelPlan) -> str:
    return f"{one.level.name} of a {one.level.holder}"
