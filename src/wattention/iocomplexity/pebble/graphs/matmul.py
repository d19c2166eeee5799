"""Matrix product C = A B: C_ij = sum over l of A_il B_lj.

As a chain: inputs A_il, B_lj, one node C_ij.l for each i, j, l with operands A_il, B_lj and, for l > 0, C_ij.(l-1).
m k + k n inputs, m k n operations.
"""

from __future__ import annotations

from itertools import product

from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.graphs.family import SUM, Family, Option, at_least
from wattention.iocomplexity.pebble.graphs.sketch import Sketch, at


def matmul(*, m: int = 2, k: int = 2, n: int = 2, sum: str = "chain") -> Graph:  # noqa: A002  the option's name
    """Return the graph of an (m x k) by (k x n) product."""
    at_least(1, m=m, k=k, n=n)
    sketch = Sketch(sum)
    for i, l in product(range(m), range(k)):  # noqa: E741  the index of the formula
        sketch.input(at("A", i, l))
    for l, j in product(range(k), range(n)):  # noqa: E741
        sketch.input(at("B", l, j))
    outputs = [
        sketch.total(at("C", i, j), [(at("A", i, l), at("B", l, j)) for l in range(k)])  # noqa: E741
        for i, j in product(range(m), range(n))
    ]
    return sketch.graph(f"matmul {m}x{k}x{n}", outputs)


FAMILY = Family(
    what="matrix product of m x k by k x n",
    options={
        "m": Option(default=2, what="rows of A and C"),
        "k": Option(default=2, what="columns of A, rows of B"),
        "n": Option(default=2, what="columns of B and C"),
        "sum": SUM,
    },
    build=matmul,
)
