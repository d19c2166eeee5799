"""Figures of the page: a frame with caption, choices and the data as a table, and the data that page.js draws."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from wattention.report.document import Axis, Figure, Series, Table, View
from wattention.report.renderers.html.tables import table_html

_ROWS = 40
"""Rows of a figure's data that the page shows; formats for programs have all of them."""


def figure_html(figure: Figure, number: int) -> str:
    """Return the frame of the figure with this number among :func:`figure_data` of the page."""
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
        + table_html(_first(figure.table), name=f"{figure.title}, data", bars=False)
        + _left_out(figure.table)
        + '<p class="told" aria-live="polite"></p></details></figure>'
    )


def _first(table: Table) -> Table:
    return replace(table, rows=table.rows[:_ROWS])


def _left_out(table: Table) -> str:
    if len(table.rows) <= _ROWS:
        return ""
    return f'<p class="told">The first {_ROWS} of {len(table.rows)} rows; --format csv writes all.</p>'


def figure_data(figure: Figure) -> dict[str, Any]:
    """Return what page.js draws, as JSON values."""
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
