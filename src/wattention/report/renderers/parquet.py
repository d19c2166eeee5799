"""Write documents as Parquet, tidy: one row a quantity, numbers in base units; needs pyarrow, which is not required."""

from __future__ import annotations

import importlib
import io

from wattention.core.errors import UserError
from wattention.report.document import Document
from wattention.report.renderers.tidy import FIELDS, tidy_rows


def parquet_bytes(*documents: Document) -> bytes:
    """Return the numbers of the documents as a Parquet file.

    Raises:
        UserError: pyarrow is not installed.
    """
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(
            "Parquet cannot be written", got="no module pyarrow", do="pip install pyarrow, or ask for --format csv"
        ) from None
    rows = list(tidy_rows(documents))
    kinds = {"value": arrow.float64(), "low": arrow.float64(), "high": arrow.float64(), "best": arrow.bool_()}
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in FIELDS])
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), out)
    return out.getvalue()
