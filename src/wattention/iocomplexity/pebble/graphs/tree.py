"""A reduction tree: ``leaves`` inputs, every inner node made from up to ``arity`` nodes of the level below."""

from __future__ import annotations

from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.graphs.family import Family, Option, at_least
from wattention.iocomplexity.pebble.graphs.sketch import Sketch


def tree(*, leaves: int = 8, arity: int = 2) -> Graph:
    """Return the reduction of ``leaves`` inputs to one output."""
    at_least(1, leaves=leaves)
    at_least(2, arity=arity)
    sketch = Sketch("chain")
    row = [sketch.input(f"x{i}") for i in range(leaves)]
    level = 0
    while len(row) > 1:
        level += 1
        groups = [row[k : k + arity] for k in range(0, len(row), arity)]
        row = [group[0] if len(group) == 1 else sketch.value(f"t{level}.{k}", *group) for k, group in enumerate(groups)]
    return sketch.graph(f"tree of {leaves} leaves, arity {arity}", row)


FAMILY = Family(
    what="reduction tree",
    options={
        "leaves": Option(default=8, what="inputs"),
        "arity": Option(default=2, what="operands of an inner node"),
    },
    build=tree,
)
