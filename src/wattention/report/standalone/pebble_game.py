"""One self-contained HTML page that plays a pebble game move by move.

The graph is drawn in layers from the inputs on the left; within a layer nodes stand near their neighbours (barycentre
sweeps). A red pebble is a disc, a blue one a ring. Nothing is fetched from anywhere; names are data, never markup.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources

from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.rules import Move

_ROW, _ASPECT = 46.0, 2.0
_SWEEPS = 12


def game_page(graph: Graph, moves: Sequence[Move], fast_words: int, *, title: str, proved: bool) -> str:
    """Return the page of a legal game.

    Args:
        graph: what is computed.
        moves: the game; see :mod:`wattention.iocomplexity.pebble.verify`.
        fast_words: M.
        title: heading of the page.
        proved: whether the game is proved optimal.
    """
    places = layout(graph)
    tallest = max(map(len, graph.layers))
    data = {
        "nodes": [
            {"name": name, "x": round(x, 1), "y": round(y, 1)} for name, (x, y) in zip(graph.nodes, places, strict=True)
        ],
        "edges": [[u, v] for v, before in enumerate(graph.operands) for u in before],
        "inputs": sorted(graph.inputs),
        "outputs": sorted(graph.outputs),
        "moves": [[move.kind, graph.node(move.node), [graph.node(u) for u in move.operands]] for move in moves],
        "fast_words": fast_words,
        "radius": 16,
        "width": round(_column(graph) * len(graph.layers), 1),
        "height": _ROW * tallest,
    }
    words = sum(move.kind in {"load", "store"} for move in moves)
    verdict = f"{words} words moved, {'proved optimal' if proved else 'the best game found'}"
    page = resources.files("wattention.report.standalone").joinpath("pebble_game.html").read_text(encoding="utf-8")
    text = json.dumps(data).replace("<", "\\u003c")  # a name such as </script> stays data
    for mark, value in (("{{title}}", html.escape(title)), ("{{verdict}}", html.escape(verdict)), ("{{data}}", text)):
        page = page.replace(mark, value)
    return page


def layout(graph: Graph) -> list[tuple[float, float]]:
    """Return the place of every node: layers are columns, the order within a layer follows the neighbours' mean."""
    near: list[list[int]] = [list(before) for before in graph.operands]
    for v, before in enumerate(graph.operands):
        for u in before:
            near[u].append(v)
    layers = [list(row) for row in graph.layers]
    tallest = max(map(len, layers))
    height = [0.0] * len(graph)

    def spread(row: list[int]) -> None:
        for k, v in enumerate(row):
            height[v] = (k + 0.5) * tallest / len(row)

    for row in layers:
        spread(row)
    for sweep in range(_SWEEPS):
        for row in layers if sweep % 2 == 0 else reversed(layers):
            mean = {v: sum(height[u] for u in near[v]) / max(1, len(near[v])) for v in row}
            row.sort(key=lambda v: (mean[v], v))
            spread(row)
    column = {v: level for level, row in enumerate(layers) for v in row}
    width = _column(graph)
    return [(width * (column[v] + 0.5), _ROW * height[v]) for v in range(len(graph))]


def _column(graph: Graph) -> float:
    """Return the width of a layer with which the picture is about twice as wide as high."""
    tallest = max(map(len, graph.layers))
    return min(190.0, max(84.0, _ASPECT * _ROW * tallest / len(graph.layers)))
