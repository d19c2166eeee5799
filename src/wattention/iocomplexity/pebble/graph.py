"""Computational graphs: values, the steps that make them, and which of them must end in slow memory.

A node is a value. A step makes (a part of) one node from operands. In a plain computational graph every node that is
not an input has exactly one step. In an accumulator graph a node may have several steps, which add into the same word
in any order; a step marked ``last`` (a final scaling, say) waits for the others. A node is complete when all its steps
are done, and only complete nodes may be operands.

Source: J.-W. Hong, H. T. Kung, "I/O complexity: the red-blue pebble game", STOC 1981.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wattention.core.errors import UserError, unknown_name


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: the node it writes, the nodes it reads, and whether it waits for the node's other steps."""

    target: int
    operands: tuple[int, ...]
    last: bool = False


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A computational graph; nodes are numbered in a topological order.

    Args:
        name: what the graph computes, for people.
        nodes: one name a node, all different.
        steps: the operations; a node without a step is an input.
        outputs: the nodes that must be in slow memory at the end.
    """

    name: str
    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: frozenset[int]

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of every node by name."""
        return {name: i for i, name in enumerate(self.nodes)}

    @cached_property
    def steps_of(self) -> tuple[tuple[int, ...], ...]:
        """The steps that write each node."""
        of: list[list[int]] = [[] for _ in self.nodes]
        for number, step in enumerate(self.steps):
            of[step.target].append(number)
        return tuple(map(tuple, of))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """The steps that read each node."""
        of: list[list[int]] = [[] for _ in self.nodes]
        for number, step in enumerate(self.steps):
            for operand in step.operands:
                of[operand].append(number)
        return tuple(map(tuple, of))

    @cached_property
    def operands(self) -> tuple[tuple[int, ...], ...]:
        """All nodes that any step of a node reads, without repetition."""
        return tuple(
            tuple(dict.fromkeys(u for number in own for u in self.steps[number].operands)) for own in self.steps_of
        )

    @cached_property
    def inputs(self) -> frozenset[int]:
        """The nodes without a step: in slow memory at the start."""
        return frozenset(i for i, own in enumerate(self.steps_of) if not own)

    @cached_property
    def useful(self) -> Graph:
        """The graph without the nodes from which no path leads to an output."""
        useful = set(self.outputs)
        for v in range(len(self) - 1, -1, -1):
            if v in useful:
                useful.update(self.operands[v])
        if len(useful) == len(self):
            return self
        number = {v: i for i, v in enumerate(sorted(useful))}
        steps = tuple(
            Step(number[step.target], tuple(number[u] for u in step.operands), step.last)
            for step in self.steps
            if step.target in useful
        )
        nodes = tuple(self.nodes[v] for v in sorted(useful))
        return Graph(name=self.name, nodes=nodes, steps=steps, outputs=frozenset(number[v] for v in self.outputs))

    @property
    def has_accumulators(self) -> bool:
        """Whether some node is made by more than one step."""
        return any(len(own) > 1 for own in self.steps_of)

    @cached_property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """The nodes by the length of the longest path that leads to them; inputs come first."""
        depth = [0] * len(self)
        for node, before in enumerate(self.operands):
            depth[node] = 1 + max((depth[u] for u in before), default=-1)
        rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
        for node, level in enumerate(depth):
            rows[level].append(node)
        return tuple(map(tuple, rows))

    def node(self, name: str) -> int:
        """Return the number of a node; UserError with near matches if there is none of that name."""
        if name not in self.index:
            raise unknown_name(f"node of {self.name}", name, self.nodes)
        return self.index[name]


def build(
    name: str,
    made_from: Mapping[str, Sequence[Sequence[str]]],
    outputs: Iterable[str],
    *,
    last: Iterable[tuple[str, int]] = (),
) -> Graph:
    """Return the graph in which every node has the given steps, in a topological order.

    Args:
        made_from: for each node its steps, each a sequence of operand names; no steps for an input.
        last: (node, position of the step) of the steps that wait for the node's other steps.

    Raises:
        UserError: an operand or output that is not a node, a step without operands, a cycle, or no nodes at all.
    """
    if not made_from:
        raise UserError("the graph has no nodes", wanted="at least one node", do="add nodes")
    known = set(made_from)
    for node, steps in made_from.items():
        for operand in (u for step in steps for u in step):
            if operand not in known:
                raise unknown_name(f"operand of node {node}", operand, known)
        if any(not step for step in steps):
            raise UserError(f"a step of node {node} has no operands", wanted="inputs have no steps at all")
    order = _topological(made_from)
    number = {node: i for i, node in enumerate(order)}
    ends = list(outputs)
    for node in ends:
        if node not in known:
            raise unknown_name("output", node, known)
    waiting = set(last)
    steps_out = tuple(
        Step(number[node], tuple(dict.fromkeys(number[u] for u in step)), (node, k) in waiting)
        for node in order
        for k, step in enumerate(made_from[node])
    )
    return Graph(name=name, nodes=tuple(order), steps=steps_out, outputs=frozenset(number[node] for node in ends))


def _topological(made_from: Mapping[str, Sequence[Sequence[str]]]) -> list[str]:
    """Return the nodes so that operands come first, otherwise in the order given; UserError names a cycle."""
    before = {node: {u for step in steps for u in step} for node, steps in made_from.items()}
    if all(_operands_seen(before)):
        return list(made_from)
    missing = {node: len(operands) for node, operands in before.items()}
    after: dict[str, list[str]] = {node: [] for node in before}
    for node, operands in before.items():
        for u in operands:
            after[u].append(node)
    ready = deque(node for node, count in missing.items() if count == 0)
    order: list[str] = []
    while ready:
        order.append(node := ready.popleft())
        for follower in after[node]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    if len(order) < len(before):
        raise UserError("the graph has a cycle", got=" -> ".join(_cycle(before, set(before) - set(order))),
                        wanted="a directed acyclic graph", do="break the cycle")  # fmt: skip
    return order


def _operands_seen(before: Mapping[str, set[str]]) -> Iterable[bool]:
    """Yield, for each node in the order given, whether all its operands came earlier."""
    seen: set[str] = set()
    for node, operands in before.items():
        yield operands <= seen
        seen.add(node)


def _cycle(before: Mapping[str, set[str]], rest: set[str]) -> list[str]:
    """Return one cycle among the nodes that no topological order can place, in the direction of the data."""
    node, path = min(rest), list[str]()
    while node not in path:
        path.append(node)
        node = min(before[node] & rest)
    return [node, *reversed(path[path.index(node) :])]


def compulsory(graph: Graph, load_cost: int = 1, store_cost: int = 1) -> int:
    """Return the traffic no game avoids: each input that a useful node reads, and each output, once."""
    useful = graph.useful
    read = sum(bool(useful.readers[v]) for v in useful.inputs)
    return read * load_cost + len(useful.outputs - useful.inputs) * store_cost


def to_json(graph: Graph) -> dict[str, Any]:
    """Return the JSON form: nodes with their operands (one step) or steps (accumulators), and the outputs."""
    nodes: list[dict[str, Any]] = []
    for node, name in enumerate(graph.nodes):
        own = [graph.steps[k] for k in graph.steps_of[node]]
        entry: dict[str, Any] = {"name": name}
        if len(own) == 1 and not own[0].last:
            entry["operands"] = [graph.nodes[u] for u in own[0].operands]
        elif own:
            entry["steps"] = [[graph.nodes[u] for u in step.operands] for step in own if not step.last]
            if final := [[graph.nodes[u] for u in step.operands] for step in own if step.last]:
                entry["last"] = final[0]
        nodes.append(entry)
    return {"name": graph.name, "nodes": nodes, "outputs": [graph.nodes[i] for i in sorted(graph.outputs)]}


def loads(text: str, *, source: str = "graph") -> Graph:
    """Return the graph that a JSON text describes.

    ``{"name": ..., "nodes": [{"name": "a"}, {"name": "c", "operands": ["a", "b"]}, ...], "outputs": ["c"]}``; an
    accumulator has ``"steps": [[...], ...]`` and may have ``"last": [...]`` instead of operands. Without ``outputs``
    the nodes that nobody reads are the outputs.

    Raises:
        UserError: malformed JSON (with its line), a missing or doubled name, an unknown operand, a cycle.
    """
    data = parse_json(text, source)
    if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
        raise UserError(f"{source} is not a graph", wanted='{"nodes": [{"name": ..., "operands": [...]}, ...]}')
    made_from: dict[str, list[list[str]]] = {}
    last: list[tuple[str, int]] = []
    for position, entry in enumerate(data["nodes"]):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise UserError(f"node {position} of {source} has no name", got=json.dumps(entry), wanted='{"name": "..."}')
        name = entry["name"]
        if name in made_from:
            raise UserError(f"two nodes of {source} have one name", got=name, do="rename one of them")
        if extra := set(entry) - {"name", "operands", "steps", "last"}:
            raise UserError(f"unknown key of node {name}", got=", ".join(sorted(extra)),
                            wanted="name, operands, steps, last")  # fmt: skip
        steps = list(entry.get("steps", []))
        if entry.get("operands"):
            steps.append(entry["operands"])
        if entry.get("last"):
            last.append((name, len(steps)))
            steps.append(entry["last"])
        if not all(isinstance(step, list) and all(isinstance(u, str) for u in step) for step in steps):
            raise UserError(
                f"the operands of node {name} are not names", got=json.dumps(steps), wanted="lists of names"
            )
        made_from[name] = steps
    read = {u for steps in made_from.values() for step in steps for u in step}
    outputs = data.get("outputs")
    if outputs is None:
        outputs = [name for name in made_from if name not in read]
    if not isinstance(outputs, list) or not all(isinstance(u, str) for u in outputs):
        raise UserError(f"the outputs of {source} are not names", got=json.dumps(outputs), wanted="a list of names")
    return build(str(data.get("name", source)), made_from, outputs, last=last)


def parse_json(text: str, source: str) -> Any:
    """Return the JSON value; UserError names the line where it is malformed."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        lines = text.splitlines() or [""]
        line = lines[min(error.lineno, len(lines)) - 1].strip()[:80]
        raise UserError(f"{source}, line {error.lineno}: malformed JSON ({error.msg})", got=line or "end of file",
                        wanted="valid JSON", do=f"correct line {error.lineno}") from None  # fmt: skip


def from_networkx(source: Any, *, name: str = "networkx graph", outputs: Iterable[Any] | None = None) -> Graph:
    """Return the graph of a networkx DiGraph whose edges point from operand to result (nodes by their str)."""
    names = {node: str(node) for node in source.nodes}
    if len(set(names.values())) < len(names):
        raise UserError("two nodes print alike", wanted="nodes with different str()", do="relabel the nodes")
    made_from = {
        names[node]: [[names[u] for u in source.predecessors(node)]] if source.in_degree(node) else []
        for node in source.nodes
    }
    ends = [node for node in source.nodes if source.out_degree(node) == 0] if outputs is None else list(outputs)
    return build(name, made_from, [str(node) for node in ends])


def to_networkx(graph: Graph) -> Any:
    """Return the networkx DiGraph with edges from operand to result and the attributes ``input`` and ``output``."""
    import networkx as nx

    out = nx.DiGraph(name=graph.name)
    for node, name in enumerate(graph.nodes):
        out.add_node(name, input=node in graph.inputs, output=node in graph.outputs)
    out.add_edges_from((graph.nodes[u], graph.nodes[v]) for v, before in enumerate(graph.operands) for u in before)
    return out
