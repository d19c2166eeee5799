"""Print a document as one self-contained HTML page: nothing is fetched, and every word from users is escaped.

Tables are complete without scripts. Figures are data in the page, drawn by an embedded plotly when they come into view.
A content security policy forbids every request, so that the page cannot reach the network even by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import escape
from importlib import resources
from typing import Any

from wattention.core.quantities import Absent, Quantity
from wattention.report.document import Axis, Cell, Column, Document, Figure, Section, Series, Table, Verdict, View
from wattention.report.units import ORIGIN_MARKS, describe_reading, format_cell

_MEASURED_MARK = "\u00b7"
_FOLD_NOTES = 12
"""Notes of a section beyond this number are folded away."""
_FIGURE_ROWS = 40
"""Rows of a figure's data that the page shows; formats for programs have all of them."""


def html_page(document: Document) -> str:
    """Return the page as one string, about 5 MB, nearly all of it the drawing library."""
    from plotly.offline.offline import get_plotlyjs

    figures = [figure for section in document.sections for figure in section.figures]
    numbers = {id(figure): number for number, figure in enumerate(figures)}
    parts = {
        "title": escape(document.title),
        "css": _resource("page.css"),
        "body": "\n".join(_body(document, numbers)),
        # a name such as </script> stays data
        "figures": json.dumps([_figure_data(f) for f in figures], separators=(",", ":")).replace("<", "\\u003c"),
        "js": _resource("page.js"),
        "plotly": get_plotlyjs() if figures else "",
    }
    head, *pieces = _resource("page.html").split("{{")
    filled = [head]
    for piece in pieces:  # one pass, so that no inserted text is searched for further marks
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def _resource(name: str) -> str:
    return resources.files("wattention.report.renderers.html").joinpath(name).read_text(encoding="utf-8")


def _body(document: Document, numbers: dict[int, int]) -> Iterator[str]:
    product, _, name = document.title.partition(": ")
    yield '<header><div class="top">'
    yield f'<span class="mark">{escape(product)}</span><button type="button" class="theme">theme: auto</button></div>'
    yield f"<h1>{escape(name or product)}</h1>"
    yield f'<p class="setting">{_lines(document.setting or document.answer)}</p>'
    if document.verdicts:
        yield '<ul class="verdicts">' + "".join(map(_verdict, document.verdicts)) + "</ul>"
    sections = _anchored(document.sections)
    if len(sections) > 1:
        links = "".join(f'<a href="#{anchor}">{escape(s.title)}</a>' for anchor, s in sections.items())
        yield f'<nav class="contents" aria-label="Contents">{links}</nav>'
    yield '</header><main id="main">'
    for anchor, section in sections.items():
        yield from _section(anchor, section, numbers)
    yield "</main><footer>Every number keeps its origin: hover over it, or click it, to see the instrument or the "
    yield "formula. This page is complete in itself and loads nothing.</footer>"


def _anchored(sections: Iterable[Section]) -> dict[str, Section]:
    """Give every section an anchor of its own; the second of a name gets a number."""
    out: dict[str, Section] = {}
    for section in sections:
        anchor, copies = section.anchor, 2
        while anchor in out:
            anchor, copies = f"{section.anchor}-{copies}", copies + 1
        out[anchor] = section
    return out


def _verdict(verdict: Verdict) -> str:
    state = "verdict decided" if verdict.decided else "verdict"
    return (
        f'<li class="{state}"><h2>{escape(verdict.question)}</h2><p class="winner">{escape(verdict.answer)}</p>'
        f'<p class="why">{escape(verdict.detail)}</p></li>'
    )


def _section(anchor: str, section: Section, numbers: dict[int, int]) -> Iterator[str]:
    yield f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
    here = f'<a class="here" href="#{anchor}" aria-label="link to this section">#</a>'
    yield f'<h2 id="{anchor}-title">{escape(section.title)}{here}</h2>'
    if section.folded:
        yield "<details><summary>Show</summary>"
    if section.table is not None:
        yield '<div class="tabled">'
        yield _table(section.table, name=section.title, bars=True)
        if any(cell.reading is not None for row in section.table.rows for cell in row):
            yield _legend(section.table)
            yield '<p class="told" aria-live="polite"></p>'
        yield "</div>"
    if section.figures:
        yield '<div class="figures">'
        for figure in section.figures:
            yield _figure(figure, numbers[id(figure)])
        yield "</div>"
    if section.notes:
        yield _notes(section.notes)
    if section.folded:
        yield "</details>"
    yield "</section>"


def _notes(notes: tuple[str, ...]) -> str:
    items = [f"<li>{escape(note)}</li>" for note in notes]
    shown = f'<ul class="notes">{"".join(items[:_FOLD_NOTES])}</ul>'
    if len(items) <= _FOLD_NOTES:
        return shown
    more = f'<ul class="notes">{"".join(items[_FOLD_NOTES:])}</ul>'
    return f"{shown}<details><summary>{len(items) - _FOLD_NOTES} more notes</summary>{more}</details>"


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(table: Table, *, name: str, bars: bool) -> str:
    numeric = any(column.numeric for column in table.columns)
    scales = [_scale(table, i) if bars else None for i in range(len(table.columns))]
    heads = "".join(_head(column) for column in table.columns)
    rows = "".join(_row(row, table.columns, scales) for row in table.rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">'
        f'<table class="sortable{"" if numeric else " words"}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _head(column: Column) -> str:
    kind = ' class="num"' if column.numeric else ""
    title = f' title="{escape(column.help)}"' if column.help else ""
    return f'<th scope="col"{kind}{title}><button type="button">{escape(column.heading)}</button></th>'


def _row(row: tuple[Cell, ...], columns: tuple[Column, ...], scales: list[float | None]) -> str:
    first, *rest = row
    cells = [f'<th scope="row">{escape(format_cell(first.content))}</th>']
    cells += [_cell(cell, columns[i], scales[i]) for i, cell in enumerate(rest, start=1)]
    return f"<tr>{''.join(cells)}</tr>"


def _cell(cell: Cell, column: Column, scale: float | None) -> str:
    reading = cell.reading
    classes = ["num"] if column.numeric else ["prose"] if column.prose else []
    classes += ["best"] if cell.best else []
    classes += ["alarm"] if cell.alarm else []
    classes += ["absent"] if isinstance(reading, Absent) else []
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if reading is not None:
        best = "\nbest, or tied with the best" if cell.best else ""
        attributes += f' title="{escape(describe_reading(reading) + best)}"'
    if isinstance(reading, Quantity):
        attributes += f' data-value="{reading.value!r}"'
    return f"<td{attributes}>{_content(cell, scale)}</td>"


def _content(cell: Cell, scale: float | None) -> str:
    """The value with its mark, below it the interval as a bar and in words."""
    reading, text = cell.reading, format_cell(cell.content)
    if not isinstance(reading, Quantity):
        return escape(text)
    mark = ORIGIN_MARKS[reading.origin]
    value, sign, spread = text.removeprefix(mark).partition(" ±")
    if not sign:
        value, sign, spread = value.partition(" [")
    words = f'<span class="half">{escape(sign.strip() + spread)}</span>' if sign else ""
    origin = f'<abbr class="origin" title="{reading.origin}">{escape(mark or _MEASURED_MARK)}</abbr>'
    below = f'<span class="spread">{_bar(reading, scale)}{words}</span>' if sign or scale is not None else ""
    return f'{origin}<span class="value">{escape(value)}</span>{below}'


def _legend(table: Table) -> str:
    readings = [cell.reading for row in table.rows for cell in row]
    used = dict.fromkeys(reading.origin for reading in readings if isinstance(reading, Quantity))
    parts = [f"<span>{escape(ORIGIN_MARKS[origin] or _MEASURED_MARK)} {origin}</span>" for origin in used]
    if any(isinstance(reading, Absent) for reading in readings):
        parts.append("<span>- absent</span>")
    if any(cell.best for row in table.rows for cell in row):
        parts.append("<span>\u2605 best, or tied with the best</span>")
    return f'<p class="legend">{" ".join(parts)}</p>'


def _scale(table: Table, column: int) -> float | None:
    """The largest number of a column of intervals, where its bars end; None where bars would say nothing."""
    readings = [row[column].reading for row in table.rows]
    numbers = [q for q in readings if isinstance(q, Quantity)]
    if len(numbers) < 2 or all(q.low is None for q in numbers) or any(q.value < 0 for q in numbers):
        return None
    if len({q.unit for q in numbers}) > 1:  # seconds and joules have no common scale
        return None
    return max(q.value if q.high is None else q.high for q in numbers) or None


def _bar(quantity: Quantity, scale: float | None) -> str:
    """Draw the value from zero, and its interval over it."""
    if scale is None:
        return ""
    width = 100 * quantity.value / scale
    shapes = '<rect class="track" y="3" width="100" height="3"/>'
    shapes += f'<rect class="bar" y="3" width="{width:.2f}" height="3"/>'
    if quantity.low is not None and quantity.high is not None:
        low, high = 100 * quantity.low / scale, 100 * quantity.high / scale
        shapes += f'<rect class="range" x="{low:.2f}" y="4" width="{max(high - low, 0.8):.2f}" height="1"/>'
        shapes += f'<rect class="range" x="{width - 0.6:.2f}" y="1" width="1.2" height="7"/>'
    return f'<svg class="interval" viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true">{shapes}</svg>'


# --- figures ---------------------------------------------------------------------------------------------------------


def _figure(figure: Figure, number: int) -> str:
    choices = "".join(
        f'<button type="button" aria-pressed="{str(i == 0).lower()}">{escape(view.label)}</button>'
        for i, view in enumerate(figure.views)
    )
    anchor = escape(f"figure-{figure.key}")
    return (
        f'<figure id="{anchor}" data-figure="{number}"><figcaption>'
        f'<h3>{escape(figure.title)}<a class="here" href="#{anchor}" aria-label="link to this figure">#</a></h3>'
        f'<p class="finding">{escape(figure.caption)}</p></figcaption>'
        + (f'<div class="choices" role="group" aria-label="axis">{choices}</div>' if len(figure.views) > 1 else "")
        + f'<div class="series" role="group" aria-label="shown"></div><div class="plot" role="img" '
        f'aria-label="{escape(figure.title)}: {escape(figure.caption)} The data follow as a table."></div>'
        + (f'<p class="how">{escape(figure.how)}</p>' if figure.how else "")
        + '<details class="tabled"><summary>Data as a table</summary>'
        + _table(_first(figure.table), name=f"{figure.title}, data", bars=False)
        + _left_out(figure.table)
        + '<p class="told" aria-live="polite"></p></details></figure>'
    )


def _first(table: Table) -> Table:
    return replace(table, rows=table.rows[:_FIGURE_ROWS])


def _left_out(table: Table) -> str:
    if len(table.rows) <= _FIGURE_ROWS:
        return ""
    return f'<p class="told">The first {_FIGURE_ROWS} of {len(table.rows)} rows; --format csv writes all.</p>'


def _figure_data(figure: Figure) -> dict[str, Any]:
    return {"key": figure.key, "views": [_view_data(view) for view in figure.views]}


def _view_data(view: View) -> dict[str, Any]:
    return {
        "x": _axis_data(view.x),
        "y": _axis_data(view.y),
        "stacked": view.stacked,
        "series": [_series_data(series) for series in view.series],
        "bands": [{"name": band.name, "begin": band.begin, "end": band.end} for band in view.bands],
    }


def _axis_data(axis: Axis) -> dict[str, Any]:
    return {"title": axis.title, "unit": axis.unit, "log": axis.log, "zero": axis.zero}


def _series_data(series: Series) -> dict[str, Any]:
    return {
        "name": series.name,
        "x": [_short(x) for x in series.x],
        "y": [_short(y) for y in series.y],
        "low": [_short(y) for y in series.low],
        "high": [_short(y) for y in series.high],
        "mark": series.mark,
        "slot": series.slot,
        "hover": list(series.hover),
        "quiet": series.quiet,
    }


def _short(value: float | str) -> float | str:
    """Six digits are more than a screen shows."""
    return value if isinstance(value, str) else float(f"{value:.6g}")


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")
