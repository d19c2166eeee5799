"""Tables of the page: every number with its origin, its source on demand, and its interval as a bar and in words."""

from __future__ import annotations

from html import escape

from wattention.core.quantities import Absent, Quantity
from wattention.report.document import Cell, Column, Table
from wattention.report.units import ORIGIN_MARKS, describe_reading, format_cell

_MEASURED_MARK = "\u00b7"


def table_html(table: Table, *, name: str, bars: bool) -> str:
    """Return a table that the page can sort; ``bars`` draws intervals on a scale of their column."""
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


def legend_html(table: Table) -> str:
    """Return what the marks in a table mean, those that it uses."""
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
