"""Automorphisms of a graph: renamings of nodes and steps that change nothing, found by refinement and search.

Permuting tokens or features of attention, or rows of a matrix product, maps games to games of the same cost, so a
search needs to keep only one state of each orbit. Any set of automorphisms is safe to use; the search here stops at a
given number of them.

Method: colour refinement (nodes get the colour of their steps, operands and readers until nothing changes), then one
node of a class after the other is mapped to every node of the same colour, refining after each choice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wattention.iocomplexity.pebble.graph import Step

Colours = tuple[int, ...]


def automorphisms(
    nodes: int, steps: tuple[Step, ...], outputs: frozenset[int], *, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return up to ``limit`` automorphisms as images of the nodes (G, nodes) and of the steps (G, steps).

    The identity comes first.
    """
    search = _Search(nodes, steps, outputs)
    images = []
    for image in search.maps():
        images.append(image)
        if len(images) == limit:
            break
    step_number = {_key(step): k for k, step in enumerate(steps)}
    step_images = [
        [step_number[_key(Step(image[s.target], tuple(image[u] for u in s.operands), s.last))] for s in steps]
        for image in images
    ]
    shape = (len(images), len(steps))
    return np.array(images, dtype=np.int64), np.array(step_images, dtype=np.int64).reshape(shape)


def _key(step: Step) -> tuple[int, frozenset[int], bool]:
    return step.target, frozenset(step.operands), step.last


class _Search:
    def __init__(self, nodes: int, steps: tuple[Step, ...], outputs: frozenset[int]) -> None:
        self.nodes, self.steps, self.outputs = nodes, steps, outputs
        self.keys = {_key(step) for step in steps}
        self.unique_steps = len(self.keys) == len(steps)

    def maps(self) -> Iterator[list[int]]:
        """Yield automorphisms, the identity first; only it if two steps cannot be told apart."""
        start = self.refine(tuple(int(v in self.outputs) for v in range(self.nodes)))
        if not self.unique_steps:
            yield list(range(self.nodes))
            return
        yield from self.extend(start, start)

    def refine(self, colours: Colours) -> Colours:
        """Return the coarsest colouring that knows the colours of everything around each node."""
        while True:
            around: list[list[tuple[object, ...]]] = [[] for _ in range(self.nodes)]
            for step in self.steps:
                read = tuple(sorted(colours[u] for u in step.operands))
                around[step.target].append((0, read, step.last, 0))
                for u in step.operands:
                    around[u].append((1, read, step.last, colours[step.target]))
            seen = [(colours[v], *sorted(around[v], key=repr)) for v in range(self.nodes)]
            rank = {entry: number for number, entry in enumerate(sorted(set(seen), key=repr))}
            new = tuple(rank[entry] for entry in seen)
            if len(rank) == len(set(colours)):
                return new
            colours = new

    def extend(self, left: Colours, right: Colours) -> Iterator[list[int]]:
        """Yield the automorphisms that map the colouring ``left`` to ``right``."""
        if sorted(left) != sorted(right):
            return
        classes: dict[int, list[int]] = {}
        for v, colour in enumerate(left):
            classes.setdefault(colour, []).append(v)
        several = [members for members in classes.values() if len(members) > 1]
        if not several:
            place = {colour: v for v, colour in enumerate(right)}
            image = [place[colour] for colour in left]
            if all(_key(Step(image[s.target], tuple(image[u] for u in s.operands), s.last)) in self.keys
                   for s in self.steps):  # fmt: skip
                yield image
            return
        first = min(several, key=len)[0]
        single = self.refine(tuple(2 * c + int(v == first) for v, c in enumerate(left)))
        same_colour = [v for v in range(self.nodes) if right[v] == left[first]]
        for choice in sorted(same_colour, key=lambda v: v != first):
            yield from self.extend(single, self.refine(tuple(2 * c + int(v == choice) for v, c in enumerate(right))))
