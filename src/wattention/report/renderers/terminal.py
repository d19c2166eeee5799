"""Print a document with rich, for narrow and wide terminals, colour or none; a pipe gets plain text."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from wattention.report.document import Cell, Document, Section, Table
from wattention.report.units import format_cell

PIPE_WIDTH = 120
"""Columns of the text when nobody's terminal says how wide it is."""

_GAP = 2
_PROSE_WIDTH = 44
_TONES = {"": "", "good": "green", "doubtful": "yellow", "quiet": "dim"}


def print_document(
    document: Document, *, file: TextIO | None = None, width: int | None = None, details: bool = True
) -> None:
    """Print a document; ``width`` defaults to the terminal's. ``details`` prints also sections marked as such."""
    console = _open_console(file, width)
    console.print(Text(document.title, style="bold"))
    console.print(document.answer, markup=False, highlight=False)
    for section in document.sections:
        if details or not section.detail:
            console.print()
            _print_section(console, section)


def print_sections(sections: Sequence[Section], *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print sections after others, as a document prints them."""
    console = _open_console(file, width)
    for section in sections:
        console.print()
        _print_section(console, section)


def print_section(section: Section, *, file: TextIO | None = None, width: int | None = None) -> None:
    """Print a section that is all there is to say."""
    _print_section(_open_console(file, width), section)


def _open_console(file: TextIO | None = None, width: int | None = None) -> Console:
    """Return a console that respects NO_COLOR, and prints plain text of a fixed width into a pipe."""
    file = file or sys.stdout
    if width is None and not file.isatty() and "COLUMNS" not in os.environ:
        width = PIPE_WIDTH
    return Console(file=file, width=width, highlight=False, soft_wrap=False)


def _print_section(console: Console, section: Section) -> None:
    console.print(Text(section.title, style="bold"))
    if section.table is not None:
        for columns in _split(section.table, console.width):
            console.print(_rich_table(section.table, columns))
    for figure in section.figures:
        console.print(Text.assemble((f"{figure.title}: ", "bold"), figure.caption))
    for warning in section.warnings:
        console.print(Text(warning, style="yellow"))
    for note in (section.marks, *section.notes) if section.marks else section.notes:
        console.print(Text(note, style="dim"))


def _split(table: Table, width: int) -> list[list[int]]:
    """Share the columns over as many tables as the width needs, the first column leading each; prose alone wraps."""
    if all(column.prose for column in table.columns):
        return [list(range(len(table.columns)))]
    widths = [
        max(len(line) for line in (*column.heading.split("\n"), *(_text(row[i]) for row in table.rows), ""))
        for i, column in enumerate(table.columns)
    ]
    widths = [
        min(each, _PROSE_WIDTH) if column.prose else each for each, column in zip(widths, table.columns, strict=True)
    ]
    parts: list[list[int]] = [[0]]
    used = widths[0]
    for i in range(1, len(widths)):
        if used + _GAP + widths[i] > width and len(parts[-1]) > 1:
            parts.append([0])
            used = widths[0]
        parts[-1].append(i)
        used += _GAP + widths[i]
    return parts


def _rich_table(table: Table, columns: Sequence[int]) -> RichTable:
    out = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for i in columns:
        column = table.columns[i]
        out.add_column(
            Text(column.heading),
            justify="right" if column.numeric else "left",
            no_wrap=not column.prose,
            overflow="fold" if column.prose else "ellipsis",
        )
    for row in table.rows:
        out.add_row(*(Text(_text(row[i]), style=_style(row[i])) for i in columns))
    return out


def _text(cell: Cell) -> str:
    text = format_cell(cell.content)
    return f"*{text}" if cell.best else text


def _style(cell: Cell) -> str:
    return "red" if cell.alarm else _TONES[cell.tone] or ("green" if cell.best else "")
