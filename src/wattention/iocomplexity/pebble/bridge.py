"""The bridge between the pebble game and the I/O engine: tiny attention, where the optimum is known exactly.

For one problem and M words of fast memory three kinds of numbers meet in one model, accumulators of one word with row
statistics free (rules ``fma``): the exact optimum of the game, what every schedule moves (its run on the memory
machine, lowered to moves and accepted by the referee at M red pebbles), and every lower bound that covers algorithms
which form each product once. A bound above the optimum, or a schedule below it, is a contradiction and an error here.

A second comparison, on the graphs without accumulators, tells what computing values again would save.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wattention.core.errors import UserError
from wattention.iocomplexity.bounds.base import AlgorithmClass
from wattention.iocomplexity.execution.lowering import Lowered, lower
from wattention.iocomplexity.pebble.exact import Solution, solve
from wattention.iocomplexity.pebble.graph import Graph, build
from wattention.iocomplexity.pebble.graphs.attention import allowed
from wattention.iocomplexity.pebble.graphs.family import parse
from wattention.iocomplexity.pebble.rules import Kind, Move, named
from wattention.iocomplexity.pebble.verify import Verdict, verify
from wattention.iocomplexity.planning.best_bound import best_bound
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.masks import Mask, from_array
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import SCHEDULES, FastMemoryTooSmallError, Schedule, Tiles

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, Direction] = ("forward", "backward")
_PLENTY = 1 << 20  # words for the run itself: its tiles are planned for M words, statistics come on top


@dataclass(frozen=True, kw_only=True)
class Case:
    """One tiny attention problem and a size of fast memory."""

    direction: Direction
    tokens: int
    dim: int
    mask: str
    fast_words: int

    def problem(self, *, free_statistics: bool) -> Problem:
        """The problem for the I/O engine."""
        return Problem(
            query_tokens=self.tokens, key_tokens=self.tokens, key_dim=self.dim, value_dim=self.dim,
            mask=self._mask(),
            widths=Widths(statistics=0) if free_statistics else Widths(),
        )  # fmt: skip

    def _mask(self) -> Mask:
        picture = np.zeros((self.tokens, self.tokens), dtype=np.bool_)
        for i, row in enumerate(allowed(self.mask, self.tokens, self.tokens)):
            picture[i, row] = True
        return from_array(picture, self.tokens, self.tokens, name=self.mask)

    def graph(self, shape: Literal["word", "chain"] = "word") -> Graph:
        """The graph of the game."""
        family = "attention" if self.direction == "forward" else "attention-backward"
        return parse(f"{family}:tokens={self.tokens},dim={self.dim},mask={self.mask},sum={shape}")


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """A schedule's run as a game, and the referee's verdict on it."""

    schedule: str
    graph: Graph
    moves: tuple[Move, ...]
    counted_words: int
    """Loads and stores of matrix words that the memory machine counted."""
    idle_words: int
    """Of these, loads of words that served row statistics only; they leave no trace in the game."""
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Confrontation:
    """Everything known about one case; ``schedules`` and ``bounds`` are (name, words), best and largest first."""

    case: Case
    solution: Solution
    schedules: tuple[tuple[str, int], ...]
    bounds: tuple[tuple[str, float], ...]

    @property
    def best_schedule(self) -> tuple[str, int] | None:
        """The schedule that moves the fewest words, if any fits."""
        return self.schedules[0] if self.schedules else None


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """The optimum of one graph with and without computing values again."""

    graph: str
    nodes: int
    fast_words: int
    once: Solution
    again: Solution


def as_game(lowered: Lowered, name: str) -> tuple[Graph, tuple[Move, ...]]:
    """Return the accumulator graph of a lowered run and the run as moves on it.

    A word that is formed a second time (a schedule that computes scores again) is a new node, marked with a prime: in
    the game with accumulators nothing is computed twice.
    """
    made_from: dict[str, list[list[str]]] = {}
    last: dict[tuple[str, int], None] = {}
    waits = {(step.target, frozenset(step.operands)) for step in lowered.steps if step.last}
    done: dict[str, set[frozenset[str]]] = {}
    now = {node: node for node in lowered.nodes}
    moves = []
    for move in lowered.moves:
        operands = tuple(now[u] for u in move.operands)
        if move.kind == "absorb":
            if frozenset(move.operands) in done.setdefault(now[move.node], set()):
                now[move.node] += "'"
            target = now[move.node]
            done.setdefault(target, set()).add(frozenset(move.operands))
            for u in operands:
                made_from.setdefault(u, [])
            steps = made_from.setdefault(target, [])
            if (move.node, frozenset(move.operands)) in waits:
                last[target, len(steps)] = None
            steps.append(list(operands))
        moves.append(Move(_kind(move.kind), now[move.node], operands))
    return build(name, made_from, [now[node] for node in lowered.outputs], last=last), tuple(moves)


def schedules_for(case: Case) -> Iterator[tuple[Schedule, Tiles]]:
    """Yield the schedules that can be a game on the graph of a case and fit its fast memory, with their tiles."""
    problem = case.problem(free_statistics=True)
    for name in SCHEDULES.names():
        schedule = SCHEDULES.load(name)
        facts = schedule.facts
        if schedule.direction != case.direction or schedule.form != "attention" or schedule.refuses(problem):
            continue
        if facts.starts_from != "nothing" or facts.remote_adds:
            continue
        try:
            yield schedule, schedule.plan(problem, case.fast_words)
        except FastMemoryTooSmallError:
            continue


def lowered_game(case: Case, schedule: Schedule, tiles: Tiles) -> Lowering:
    """Return a schedule's run as a game for ``case.fast_words`` red pebbles, judged by the referee.

    The tiles are those of free statistics, so that only matrix words take room, as in the game.
    """
    lowered = lower(schedule, case.problem(free_statistics=False), _PLENTY, tiles=tiles)
    graph, moves = as_game(lowered, f"{schedule.name}, {case.tokens} tokens, dim {case.dim}, {case.mask}")
    counted = schedule.predict(case.problem(free_statistics=True), tiles).matrix_words
    verdict = verify(graph, moves, case.fast_words, named("fma"))
    return Lowering(
        schedule=schedule.name, graph=graph, moves=moves, counted_words=counted,
        idle_words=counted - lowered.words, verdict=verdict,
    )  # fmt: skip


def _kind(kind: str) -> Kind:
    assert kind in {"load", "store", "delete", "absorb"}, kind
    return kind  # type: ignore[return-value]


def confront(case: Case, *, time_limit_s: float = 60.0) -> Confrontation:
    """Return the optimum, all schedules and all bounds of a case, and insist that they do not contradict each other."""
    solution = solve(case.graph(), case.fast_words, named("fma"), time_limit_s=time_limit_s)
    schedules = []
    for schedule, tiles in schedules_for(case):
        game = lowered_game(case, schedule, tiles)
        words = game.verdict.cost()
        assert game.verdict.legal, (case, schedule.name, game.verdict.illegal)
        assert words == game.counted_words - game.idle_words, (case, schedule.name, words, game.counted_words)
        if schedule.facts.forms_scores_once:
            assert words >= solution.lower_bound, (case, schedule.name, words, solution.lower_bound)
        schedules.append((schedule.name, words))
    found = best_bound(
        case.problem(free_statistics=True), case.fast_words, direction=case.direction,
        algorithm_class=AlgorithmClass.ONCE,
    )  # fmt: skip
    bounds = tuple((held.bound.name, held.words) for held in found.holding)
    assert bounds[0][1] <= solution.cost, (case, bounds, solution.cost)
    ranked = tuple(sorted(schedules, key=lambda entry: (entry[1], entry[0])))
    return Confrontation(case=case, solution=solution, schedules=ranked, bounds=bounds)


def cases(
    *,
    directions: Iterable[Direction] = DIRECTIONS,
    masks: Iterable[str] = ("dense", "causal"),
    sizes: Iterable[tuple[int, int]] = ((2, 1), (2, 2), (3, 1)),
    fast_words: Iterable[int] = (3, 4, 5, 6, 8, 10, 12, 16),
) -> list[Case]:
    """Return the cases of a table; sizes of fast memory that hold every word are left out."""
    memory = sorted(set(fast_words))
    if memory and memory[0] < 3:
        raise UserError("fast memory is too small for a multiply-add", got=memory[0], wanted="at least 3 words")
    out = []
    for direction in directions:
        for tokens, dim in sizes:
            for mask in masks:
                words = len(Case(direction=direction, tokens=tokens, dim=dim, mask=mask, fast_words=3).graph())
                out += [
                    Case(direction=direction, tokens=tokens, dim=dim, mask=mask, fast_words=m)
                    for m in memory
                    if m < words
                ]
    return out


def compare_recomputation(spec: str, fast_words: int, *, time_limit_s: float = 60.0) -> Recomputation:
    """Return what computing values again saves on a graph given by its spec."""
    graph = parse(spec)
    once, again = (
        solve(graph, fast_words, named(rules), time_limit_s=time_limit_s) for rules in ("no-recompute", "hong-kung")
    )
    return Recomputation(graph=spec, nodes=len(graph), fast_words=fast_words, once=once, again=again)
