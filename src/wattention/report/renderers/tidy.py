"""The numbers of a document as tidy rows: one row a quantity, with the table and the row it stands in."""

from __future__ import annotations

from collections.abc import Iterator

from wattention.core.quantities import Absent
from wattention.report.document import Document, Table
from wattention.report.units import format_cell

FIELDS = (
    "document", "section", "row", "quantity", "value", "unit", "low", "high", "origin", "source", "absent", "best",
)  # fmt: skip

Tidy = dict[str, str | float | bool | None]


def tidy_rows(documents: tuple[Document, ...]) -> Iterator[Tidy]:
    """Yield every number of the documents' tables and figures, and every number that is absent with a reason."""
    for document in documents:
        for section in document.sections:
            if section.table is not None:
                yield from _of_table(section.table, document.title, section.anchor)
            for figure in section.figures:
                yield from _of_table(figure.table, document.title, f"figure-{figure.key}")


def _of_table(table: Table, document: str, section: str) -> Iterator[Tidy]:
    for row in table.rows:
        name = format_cell(row[0].content)
        for column, cell in zip(table.columns[1:], row[1:], strict=True):
            reading = cell.reading
            if reading is None:
                continue
            out: Tidy = dict.fromkeys(FIELDS)
            out |= {"document": document, "section": section, "row": name, "quantity": column.key, "best": cell.best}
            if isinstance(reading, Absent):
                out["absent"] = reading.reason
            else:
                out |= {"value": reading.value, "unit": reading.unit, "low": reading.low, "high": reading.high}
                out |= {"origin": reading.origin, "source": reading.source}
            yield out
