"""The optimal game on a small graph, with its move list as certificate; or what was proved when time ran out.

An upper bound comes first, from the heuristic. Then A* looks only for something cheaper: ``once`` for the rules that do
every step once, ``again`` for those that allow recomputation. The moves found are played by the referee, and the
answer reports the referee's counts. At the time or memory limit the answer is the best game found and the lower bound
proved by then (no state of lower priority is left). Graphs beyond 64 useful nodes or steps are not searched: for them
the lower bound is the traffic no game avoids, every input once and every output once.

The problem is PSPACE-complete in general (Demaine and Liu, SPAA 2018); time and memory grow exponentially.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.bits import BEAT, COUNT, DONE, FULL, GOAL, LIMIT, PROVED, WANTED, States
from wattention.iocomplexity.pebble.graph import Graph, compulsory
from wattention.iocomplexity.pebble.heuristic import pebble
from wattention.iocomplexity.pebble.rules import Move, Rules, check_memory, steps_under
from wattention.iocomplexity.pebble.verify import verify

LARGEST_COST = 1000
_BUDGET = 200_000  # macro moves between two looks at the clock


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The best game found and what is proved about it.

    ``optimum`` is None unless ``cost`` is proved optimal; ``lower_bound`` is proved in any case. ``states`` counts the
    states stored by the search, and ``stopped`` says what ended it early: "" or "time", "memory", "size".
    """

    optimum: int | None
    cost: int
    lower_bound: int
    loads: int
    stores: int
    moves: tuple[Move, ...]
    nodes: int
    states: int
    seconds: float
    stopped: str

    @property
    def proved(self) -> bool:
        """Whether the game is proved optimal."""
        return self.optimum is not None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "optimum": self.optimum, "proved": self.proved, "cost": self.cost, "lower_bound": self.lower_bound,
            "loads": self.loads, "stores": self.stores, "moves": [move.to_json() for move in self.moves],
            "nodes": self.nodes, "states": self.states, "seconds": round(self.seconds, 3), "stopped": self.stopped,
        }  # fmt: skip


class Game(Protocol):
    """What the driver needs of a search."""

    @property
    def paid(self) -> int:
        """Cost that is not in the priorities."""

    def begin(self, states: States) -> None:
        """Enter the first state."""

    def run(self, states: States, budget: int) -> int:
        """Search on; return DONE, FULL or CLOCK."""

    def moves(self, path: list[tuple[int, int, int]]) -> list[Move]:
        """Return the move list of a path of states."""


def solve(
    graph: Graph, fast_words: int, rules: Rules, *, load_cost: int = 1, store_cost: int = 1,
    time_limit_s: float = 60.0, memory_limit_bytes: int = 4 << 30, effort: float = 1.0, orbits: int = 512,
) -> Solution:  # fmt: skip
    """Return the cheapest game on a graph, or the best found and a proved lower bound.

    Args:
        fast_words: words of fast memory, M.
        load_cost, store_cost: what a load and a store cost, whole numbers from 0 to 1000.
        time_limit_s, memory_limit_bytes: limits of the search.
        effort: how hard the heuristic tries first; see :func:`pebble`.
        orbits: how many automorphisms to use at most.

    Raises:
        UserError: a fast memory that is too small (naming the node), a graph that does not suit the rules, bad costs.
    """
    for name, price in (("load_cost", load_cost), ("store_cost", store_cost)):
        if not 0 <= price <= LARGEST_COST:
            raise UserError(f"bad {name}", got=price, wanted=f"a whole number from 0 to {LARGEST_COST}")
    check_memory(graph, fast_words, rules)
    start = time.perf_counter()
    useful = graph.useful
    moves = pebble(useful, fast_words, rules, load_cost=load_cost, store_cost=store_cost, effort=effort)
    cost = verify(useful, moves, fast_words, rules).cost(load_cost, store_cost)
    bound, states, stopped = compulsory(useful, load_cost, store_cost), 0, ""
    if max(len(useful), len(steps_under(useful, rules))) > LIMIT:
        stopped = "size" if bound < cost else ""
    elif bound < cost:
        game = _game(useful, fast_words, rules, load_cost, store_cost, orbits)
        table = States(beat=cost - game.paid, memory_bytes=memory_limit_bytes)
        game.begin(table)
        stopped = _search(game, table, start + time_limit_s)
        states = int(table.scalars[COUNT])
        if table.scalars[GOAL] >= 0:
            cost = game.paid + int(table.scalars[BEAT])
            moves = game.moves(table.path())
        bound = max(bound, cost if not stopped else game.paid + int(table.scalars[PROVED]))
    verdict = verify(graph, moves, fast_words, rules)
    assert verdict.legal, verdict.illegal
    assert verdict.cost(load_cost, store_cost) == cost, (verdict, cost)
    return Solution(
        optimum=cost if bound == cost else None, cost=cost, lower_bound=bound, loads=verdict.loads,
        stores=verdict.stores, moves=tuple(moves), nodes=len(graph), states=states,
        seconds=time.perf_counter() - start, stopped=stopped if bound < cost else "",
    )  # fmt: skip


def _game(graph: Graph, room: int, rules: Rules, load_cost: int, store_cost: int, orbits: int) -> Game:
    """Return the search for the rules; imported here because compiling it takes a while."""
    if rules.recompute:
        from wattention.iocomplexity.pebble.again import AgainGame

        return AgainGame.of(graph, rules, room, load_cost, store_cost, orbits)
    from wattention.iocomplexity.pebble.once import OnceGame

    return OnceGame.of(graph, rules, room, load_cost, store_cost, orbits)


def _search(game: Game, table: States, deadline: float) -> str:
    """Search until the end or a limit; return which limit, or the empty string."""
    while True:
        status = game.run(table, _BUDGET)
        if status == DONE:
            return ""
        if status == FULL and not table.grow(max(int(table.scalars[WANTED]), len(table.keys) // 2)):
            return "memory"
        if time.perf_counter() > deadline:
            return "time"
