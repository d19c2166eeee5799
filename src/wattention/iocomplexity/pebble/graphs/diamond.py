"""The diamond graph: a grid whose node (i, j) is made from (i-1, j) and (i, j-1); one input, one output.

Dynamic programs (edit distance, LU sweeps) have this shape. With ``size`` memory of size + 1 words it needs no spill.
"""

from __future__ import annotations

from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.graphs.family import Family, Option, at_least
from wattention.iocomplexity.pebble.graphs.sketch import Sketch, at


def diamond(*, rows: int = 3, columns: int = 0) -> Graph:
    """Return the diamond of ``rows`` by ``columns`` nodes (0 columns: as many as rows)."""
    columns = columns or rows
    at_least(1, rows=rows, columns=columns)
    sketch = Sketch("chain")
    sketch.input(at("g", 0, 0))
    for i in range(rows):
        for j in range(columns):
            before = ([at("g", i - 1, j)] if i else []) + ([at("g", i, j - 1)] if j else [])
            if before:
                sketch.value(at("g", i, j), *before)
    return sketch.graph(f"diamond {rows}x{columns}", [at("g", rows - 1, columns - 1)])


FAMILY = Family(
    what="diamond: a grid of dependences",
    options={
        "rows": Option(default=3, what="rows of the grid"),
        "columns": Option(default=0, what="columns; 0 for as many as rows"),
    },
    build=diamond,
)
