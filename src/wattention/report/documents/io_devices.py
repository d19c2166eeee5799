"""Head dimensions from which on schedules for small caches move the fewest words, by device and level."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.iocomplexity.planning.levels import Threshold
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import format_value


def devices_document(found: Sequence[Threshold], *, dtype: str, share: float) -> Document:
    """The answer of ``wattention io devices``: head dimensions above which small-cache schedules win."""
    columns = (
        Column(key="device", heading="device", help="hardware profile", numeric=False),
        Column(key="level", heading="fast memory", help="level and who owns it", numeric=False),
        Column(key="bytes", heading="size", help="bytes one owner can use"),
        Column(key="words", heading="words", help="M"),
        Column(key="forward", heading="forward\nsmall-cache d >", help="sqrt(M)"),
        Column(key="stored", heading="backward\nstores dS d >", help="sqrt(M / 2.5)"),
        Column(key="backward", heading="backward\nsmall-cache d >", help="sqrt(3 M / 4)"),
        Column(key="source", heading="source", help="where the size was read", numeric=False),
    )
    rows = tuple(
        (
            Cell(content=one.device),
            Cell(content=f"{one.level.name} of a {one.level.holder}"),
            Cell(content=format_value(one.level.capacity.value * share, "byte")),
            Cell(content=str(one.fast_words)),
            Cell(content=str(one.forward_head_dim)),
            Cell(content=str(one.stored_gradient_head_dim)),
            Cell(content=str(one.backward_head_dim)),
            Cell(content="recalled" if one.level.capacity.recalled else "stated"),
        )
        for one in found
    )
    used = "" if share == 1 else f", {share:g} of each level"
    notes = [
        "Leading terms: sqrt(M) forward, sqrt(M / 2.5) and sqrt(3 M / 4) backward; numbers of one width.",
        "Words through a level are not time: a kernel may be bound by arithmetic instead.",
    ]
    if any(one.level.capacity.recalled for one in found):
        notes.append("Source 'recalled': the size was written down from memory and awaits its data sheet.")
    return Document(
        title=f"Where the small-cache regime begins ({dtype}{used})",
        answer="Above the head dimension of a column, the schedule it names moves the fewest words through the level.",
        sections=(
            Section(
                title="Thresholds",
                table=Table(columns=columns, rows=rows),
                notes=tuple(notes),
            ),
        ),
    )
