"""A sketch of a graph: values are added in the order a program would make them, sums in one of three shapes.

``chain``: every term makes a new node from its factors and the node before it. ``tree``: every product is a node and
the products are added pairwise. ``word``: one accumulator node with a step for every term.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattention.iocomplexity.pebble.graph import Graph, build


def at(letter: str, *place: int) -> str:
    """Name the element of an array: ``S`` at (1, 0) is S10, at (1, 12) it is S1_12."""
    return letter + ("" if all(i < 10 for i in place) else "_").join(map(str, place))


class Sketch:
    """Nodes and steps in the order they are added."""

    def __init__(self, shape: str) -> None:
        self.shape = shape
        self.made_from: dict[str, list[list[str]]] = {}
        self.last: list[tuple[str, int]] = []

    def input(self, name: str) -> str:
        """Name an input, adding it at its first use."""
        self.made_from.setdefault(name, [])
        return name

    def value(self, name: str, *operands: str) -> str:
        """Add a value made by one operation."""
        self.made_from[name] = [list(operands)]
        return name

    def finish(self, name: str, *operands: str) -> str:
        """Apply a last operation to a sum: in place for an accumulator word, else a new value under that name."""
        if self.shape == "word":
            self.last.append((name, len(self.made_from[name])))
            self.made_from[name].append(list(operands))
            return name
        return self.value(name, *operands)

    def total(self, name: str, terms: Sequence[Sequence[str]], *, keep_name: bool = True) -> str:
        """Add a sum of products and return the node that holds it.

        ``keep_name``: whether the complete sum is called ``name``; otherwise a suffix leaves the name to a later value.
        """
        if self.shape == "word":
            self.made_from[name] = [list(term) for term in terms]
            return name
        end = name if keep_name else f"{name}."
        if self.shape == "chain":
            for k, term in enumerate(terms):
                here = end if k == len(terms) - 1 else f"{name}.{k}"
                self.value(here, *term, *([f"{name}.{k - 1}"] if k else []))
            return end
        row = [term[0] if len(term) == 1 else self.value(f"{name}*{k}", *term) for k, term in enumerate(terms)]
        level = 0
        while len(row) > 1:
            level += 1
            pairs = [row[k : k + 2] for k in range(0, len(row), 2)]
            single = len(pairs) == 1
            row = [
                pair[0] if len(pair) == 1 else self.value(end if single else f"{name}+{level}.{k}", *pair)
                for k, pair in enumerate(pairs)
            ]
        return row[0]

    def graph(self, name: str, outputs: Iterable[str]) -> Graph:
        """Return the finished graph."""
        return build(name, self.made_from, outputs, last=self.last)
