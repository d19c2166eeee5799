r"""Print a document's tables as LaTeX, ready for a paper: booktabs rules, escaped text, siunitx not needed.

The text needs ``\usepackage{booktabs}``. Wide tables come in parts that fit a page, the first column leading each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import format_cell

COLUMNS_A_PART = 8

_SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
        "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", "±": r"$\pm$", "µ": r"$\mu$", "\n": " ",
    }
)  # fmt: skip


def latex_text(document: Document) -> str:
    """Return the tables of a document, each a ``table`` environment with its caption and label."""
    parts = ["% needs \\usepackage{booktabs}", f"% {' '.join(document.title.split())}"]
    for section in document.sections:
        if section.table is not None and not section.detail:
            parts += _tables(section, section.table)
    return "\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Escape what LaTeX would read as a command."""
    return text.translate(_SPECIAL)


def _tables(section: Section, table: Table) -> Iterator[str]:
    step = COLUMNS_A_PART - 1
    starts = range(1, len(table.columns), step)
    for part, start in enumerate(starts, start=1):
        chosen = [0, *range(start, min(start + step, len(table.columns)))]
        number = f" ({part} of {len(starts)})" if len(starts) > 1 else ""
        label = f"{section.anchor}-{part}" if len(starts) > 1 else section.anchor
        yield _table(table, chosen, caption=section.title + number, label=label, marks=section.marks)


def _table(table: Table, chosen: list[int], *, caption: str, label: str, marks: str) -> str:
    columns = [table.columns[i] for i in chosen]
    legend = f"\n  \\par\\smallskip\\footnotesize {escape(' '.join(marks.split()))}" if marks else ""
    body = "\n".join(f"    {_line(_cell(row[i]) for i in chosen)}" for row in table.rows)
    return (
        "\\begin{table}\n  \\centering\n"
        f"  \\caption{{{escape(caption)}}}\n  \\label{{tab:{label}}}\n"
        f"  \\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns)}}}\n"
        f"    \\toprule\n    {_line(_heading(column) for column in columns)}\n    \\midrule\n{body}\n"
        f"    \\bottomrule\n  \\end{{tabular}}{legend}\n\\end{{table}}"
    )


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _heading(column: Column) -> str:
    return escape(column.heading)


def _cell(cell: Cell) -> str:
    text = escape(format_cell(cell.content))
    return f"\\textbf{{{text}}}" if cell.best and text else text
