"""The referee: play a move list by the rules and say what it costs, or which move is illegal and why.

Written from the rules alone, and shorter than anything it judges; no finder is imported here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.pebble.graph import Graph, parse_json
from wattention.iocomplexity.pebble.rules import KINDS, Move, Rules, steps_under


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a move list does: its loads, stores and largest number of red pebbles, and what is wrong with it.

    ``illegal`` is None for a complete legal game; otherwise it says why move number ``at`` (from 0) is illegal, and
    the counts are those of the moves before it. ``at`` is the length of the list if only the end is wrong.
    """

    loads: int
    stores: int
    peak: int
    illegal: str | None = None
    at: int | None = None

    @property
    def legal(self) -> bool:
        """Whether every move is legal and the outputs are in slow memory at the end."""
        return self.illegal is None

    def cost(self, load_cost: int = 1, store_cost: int = 1) -> int:
        """Words moved, weighted."""
        return self.loads * load_cost + self.stores * store_cost


@dataclass
class _Board:
    graph: Graph
    rules: Rules
    left: list[list[tuple[frozenset[int], bool]]]  # for each node the steps not yet done: operands, last
    red: set[int] = field(default_factory=set)
    blue: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)  # computed at least once, or begun

    def complete(self, node: int) -> bool:
        return not self.left[node]

    def not_ready(self, operands: Iterable[int]) -> str | None:
        for u in operands:
            if u not in self.red:
                return f"operand {self.graph.nodes[u]} is not red"
            if self.rules.absorb != "nothing" and not self.complete(u):
                return f"operand {self.graph.nodes[u]} is not complete"
        return None


def verify(graph: Graph, moves: Iterable[Move], fast_words: int, rules: Rules) -> Verdict:
    """Return the verdict on a move list.

    Args:
        fast_words: the largest number of red pebbles, M.

    Raises:
        UserError: a move names a node that does not exist, or the graph does not suit the rules.
    """
    left: list[list[tuple[frozenset[int], bool]]] = [[] for _ in graph.nodes]
    for step in steps_under(graph, rules):
        left[step.target].append((frozenset(step.operands), step.last))
    board = _Board(graph, rules, left, blue=set(graph.inputs), touched=set(graph.inputs))
    counts = {"load": 0, "store": 0}
    peak = number = 0
    for number, move in enumerate(moves, start=1):
        why = _play(board, move)
        if why is None and len(board.red) > fast_words:
            why = f"{len(board.red)} red pebbles, and fast memory holds {fast_words}"
        if why is not None:
            text = f"move {number - 1} ({' '.join(move.to_json())}): {why}"
            return Verdict(loads=counts["load"], stores=counts["store"], peak=peak, illegal=text, at=number - 1)
        if move.kind in counts:
            counts[move.kind] += 1
        peak = max(peak, len(board.red))
    why = None
    for node in sorted(graph.outputs):
        if node not in board.blue or (rules.absorb != "nothing" and not board.complete(node)):
            why = f"at the end output {graph.nodes[node]} is not in slow memory"
            break
    return Verdict(loads=counts["load"], stores=counts["store"], peak=peak, illegal=why, at=number if why else None)


def _play(board: _Board, move: Move) -> str | None:  # noqa: PLR0911  one return a rule
    """Make one move on the board; return why it is illegal, or None."""
    graph, rules = board.graph, board.rules
    node = graph.node(move.node)
    named = [graph.node(u) for u in move.operands]
    if move.kind not in rules.moves:
        return f"the rules {rules.name} have no such move"
    if move.kind == "load":
        if node not in board.blue:
            return f"{move.node} is not in slow memory"
        board.red.add(node)
        return None
    if move.kind in {"store", "delete"}:
        if node not in board.red:
            return f"{move.node} is not red"
        (board.blue.add if move.kind == "store" else board.red.discard)(node)
        return None
    if node in graph.inputs:
        return f"{move.node} is an input"
    if move.kind == "absorb":
        return _absorb(board, node, frozenset(named))
    if not rules.recompute and node in board.touched:
        return f"{move.node} was computed before"
    operands = graph.operands[node]
    if why := board.not_ready(operands):
        return why
    if move.kind == "slide":
        if len(named) != 1 or named[0] not in operands:
            return f"a pebble slides to {move.node} from one of its operands"
        board.red.discard(named[0])
    board.red.add(node)
    board.touched.add(node)
    return None


def _absorb(board: _Board, node: int, operands: frozenset[int]) -> str | None:
    """Add operands into a node: it becomes dirty, so its copy in slow memory is stale."""
    name, left = board.graph.nodes[node], board.left[node]
    step = next((step for step in left if step[0] == operands), None)
    if step is None:
        return f"{name} has no step left with these operands"
    if step[1] and len(left) > 1:
        return f"the last step of {name} waits for its other steps"
    if why := board.not_ready(sorted(operands)):
        return why
    if node in board.touched and node not in board.red:
        return f"{name} was begun and is not red"
    left.remove(step)
    board.red.add(node)
    board.touched.add(node)
    board.blue.discard(node)
    return None


def moves_from_json(text: str, *, source: str = "moves") -> list[Move]:
    """Return the moves of a JSON list ``[["load", "a"], ["compute", "c"], ...]`` (or an object with key ``moves``).

    Raises:
        UserError: malformed JSON (with its line), an entry that is not a move, an unknown kind.
    """
    data: Any = parse_json(text, source)
    if isinstance(data, dict):
        data = data.get("moves")
    if not isinstance(data, list):
        raise UserError(f"{source} is not a list of moves", wanted='[["load", "a"], ["compute", "c"], ...]')
    moves: list[Move] = []
    for number, entry in enumerate(data):
        if not isinstance(entry, list) or len(entry) < 2 or not all(isinstance(word, str) for word in entry):
            raise UserError(f"entry {number} of {source} is not a move", got=entry, wanted='["load", "a"]')
        kind, node, *operands = entry
        if kind not in KINDS:
            raise unknown_name(f"kind of move (entry {number} of {source})", kind, KINDS)
        moves.append(Move(kind, node, tuple(operands)))
    return moves
