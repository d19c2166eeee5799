"""A document as data: sections of tables, figures and notes, which any renderer can print.

Analysis returns values, a document arranges them, a renderer prints; no value prints itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from wattention.core.quantities import Quantity, Reading


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: a stable key, its heading, the explanation a reader may ask for; ``prose`` is sentences, to wrap."""

    key: str
    heading: str
    help: str
    numeric: bool = True
    prose: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell: words or a reading, and whether it is the best of its column or tied with the best.

    Words that spell out a number carry it as ``number``, for sorting, for its origin and for machines. An ``alarm`` is
    not to be overlooked; ``tone`` is how the other states look where there are colours.
    """

    content: str | Reading
    best: bool = False
    alarm: bool = False
    tone: Literal["", "good", "doubtful", "quiet"] = ""
    number: Quantity | None = None

    @property
    def reading(self) -> Reading | None:
        """The number, or the reason of its absence; None for mere words."""
        return self.number if isinstance(self.content, str) else self.content


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells below columns; the first column names the row and is repeated when a table must be split."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: what it shows, in which base unit (renderers add prefixes), if it is logarithmic, if it starts at 0."""

    title: str
    unit: str = ""
    log: bool = False
    zero: bool = False


@dataclass(frozen=True, kw_only=True)
class Series:
    """One named set of points; ``slot`` is the place of its colour, the same for a mechanism in all figures.

    Args:
        x: numbers, or words for bars.
        low, high: intervals of ``y``, or empty.
        mark: points, a line, both, bars, or steps along a front.
        hover: what is said of each point; text, never markup.
        quiet: drawn as background, e.g. a guide line; has no colour of its own.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    mark: Literal["points", "line", "both", "bars"] = "points"
    slot: int = 0
    hover: tuple[str, ...] = ()
    quiet: bool = False

    def __post_init__(self) -> None:
        assert len(self.x) == len(self.y)
        assert len(self.low) == len(self.high)
        assert len(self.low) in (0, len(self.y))
        assert len(self.hover) in (0, len(self.y))


@dataclass(frozen=True, kw_only=True)
class Band:
    """A named stretch of the x axis, drawn as shading behind the series."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True, kw_only=True)
class View:
    """One way to look at a figure: its axes and series. A figure with several offers them by ``label``."""

    label: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    stacked: bool = False
    bands: tuple[Band, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure as data.

    Args:
        caption: what the figure finds, in plain words.
        how: how its numbers were had; empty where the caption says all.
        table: its data, for those who cannot see it and those who want the numbers.
    """

    key: str
    title: str
    caption: str
    views: tuple[View, ...]
    table: Table
    how: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, at most one table, figures, and notes in plain words.

    Args:
        warnings: notes that are not to be overlooked.
        marks: what the marks of plain text mean; renderers with marks of their own leave it out.
        folded: of use to few readers; renderers that can fold it away do.
        detail: left out where only the result is asked for, e.g. at the end of a comparison in the terminal.
        key: a stable name for links; the title's words where not given.
    """

    title: str
    table: Table | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    marks: str = ""
    folded: bool = False
    detail: bool = False
    key: str = ""

    @property
    def anchor(self) -> str:
        """The name that links lead to."""
        return re.sub(r"[^a-z0-9]+", "-", (self.key or self.title).lower()).strip("-") or "section"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer to one question, e.g. which mechanism is fastest: the winners, or why there is none."""

    question: str
    answer: str
    detail: str = ""
    decided: bool = True


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a renderer prints: a title, one sentence that answers the question, and sections.

    ``verdicts`` are the same answer, question by question, for renderers that have room.
    """

    title: str
    answer: str
    sections: tuple[Section, ...]
    verdicts: tuple[Verdict, ...] = ()
    setting: str = ""
