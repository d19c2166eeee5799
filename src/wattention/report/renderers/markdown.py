"""Print a document as Markdown, for a README, an issue or a notebook; text from users is escaped."""

from __future__ import annotations

from collections.abc import Iterable

from wattention.report.document import Cell, Document, Section, Table
from wattention.report.units import format_cell

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~"})

_LONG = 40
"""Rows beyond which the data of a figure are left to other formats."""


def markdown_text(document: Document) -> str:
    """Return the document as Markdown."""
    parts = [f"## {escape(document.title)}", escape(document.answer).replace("\n", "\n\n")]
    for section in document.sections:
        parts += _section(section)
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Escape what Markdown or HTML would read as markup."""
    return text.translate(_SPECIAL)


def _section(section: Section) -> list[str]:
    parts = [f"### {escape(section.title)}"] if section.title else []
    if section.table is not None:
        parts.append(_table(section.table))
    for figure in section.figures:
        parts.append(f"**{escape(figure.title)}.** {escape(figure.caption)}")
        parts += [_table(figure.table)] if len(figure.table.rows) <= _LONG else []
    notes = (section.marks, *section.notes) if section.marks else section.notes
    lines = [*(f"- **{escape(one)}**" for one in section.warnings), *(f"- {escape(note)}" for note in notes)]
    if lines:
        parts.append("\n".join(lines))
    return parts


def _table(table: Table) -> str:
    lines = [
        _line(escape(column.heading.replace("\n", " ")) for column in table.columns),
        _line("---:" if column.numeric else "---" for column in table.columns),
        *(_line(_cell(cell) for cell in row) for row in table.rows),
    ]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = escape(format_cell(cell.content))
    return f"**{text}**" if cell.best and text else text
