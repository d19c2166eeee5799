"""Print a document as one self-contained HTML page: nothing is fetched, and every word from users is escaped.

Tables are complete without scripts. Figures are data in the page, drawn by an embedded plotly when they come into view.
A content security policy forbids every request, so that the page cannot reach the network even by mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources

from wattention.report.document import Document, Section, Verdict
from wattention.report.renderers.html.figures import figure_data, figure_html
from wattention.report.renderers.html.tables import legend_html, table_html

_FOLD_NOTES = 12
"""Notes of a section beyond this number are folded away."""


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
        "figures": json.dumps([figure_data(f) for f in figures], separators=(",", ":")).replace("<", "\\u003c"),
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
        yield table_html(section.table, name=section.title, bars=True)
        if any(cell.reading is not None for row in section.table.rows for cell in row):
            yield legend_html(section.table)
            yield '<p class="told" aria-live="polite"></p>'
        yield "</div>"
    if section.figures:
        yield '<div class="figures">'
        for figure in section.figures:
            yield figure_html(figure, numbers[id(figure)])
        yield "</div>"
    if section.warnings or section.notes:
        yield _notes(section)
    if section.folded:
        yield "</details>"
    yield "</section>"


def _notes(section: Section) -> str:
    items = [f"<li><strong>{escape(one)}</strong></li>" for one in section.warnings]
    items += [f"<li>{escape(note)}</li>" for note in section.notes]
    shown = f'<ul class="notes">{"".join(items[:_FOLD_NOTES])}</ul>'
    if len(items) <= _FOLD_NOTES:
        return shown
    more = f'<ul class="notes">{"".join(items[_FOLD_NOTES:])}</ul>'
    return f"{shown}<details><summary>{len(items) - _FOLD_NOTES} more notes</summary>{more}</details>"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")
