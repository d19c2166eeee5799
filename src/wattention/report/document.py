"""A document as data: sections of tables and notes, which any renderer can print.

Analysis returns values, a document arranges them, a renderer prints; no value prints itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattention.core.quantities import Reading


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: a stable key, its heading, the explanation a reader may ask for, and the direction that is best."""

    key: str
    heading: str
    help: str
    numeric: bool = True


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: words or a reading, and whether it is the best of its column or tied with the best."""

    content: str | Reading
    best: bool = False
    alarm: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells below columns; the first column names the row and is repeated when a table must be split."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, at most one table, and notes in plain words."""

    title: str
    table: Table | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a renderer prints: a title, one sentence that answers the question, and sections."""

    title: str
    answer: str
    sections: tuple[Section, ...]
