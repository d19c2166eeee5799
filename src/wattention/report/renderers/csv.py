"""Print documents as CSV, tidy: one row a quantity, numbers in base units and in full precision."""

from __future__ import annotations

import csv
import io

from wattention.report.document import Document
from wattention.report.renderers.tidy import FIELDS, tidy_rows


def csv_text(*documents: Document) -> str:
    """Return the numbers of the documents as CSV with a header."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in tidy_rows(documents):
        writer.writerow({key: _inert(value) for key, value in row.items()})
    return out.getvalue()


def _inert(value: str | float | bool | None) -> str | float | bool | None:
    """A spreadsheet takes a word that starts like a formula for one; a leading apostrophe keeps it a word."""
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"} else value
