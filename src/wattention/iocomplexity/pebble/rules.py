"""The rules of the game as a table.

At the start the inputs are blue (in slow memory); at the end the outputs must be. At most M nodes are red (in fast
memory) at any time. Moves:
  load v      blue v becomes red too (costs ``load_cost``)
  store v     red v becomes blue too (costs ``store_cost``)
  compute v   all operands of v are red: v becomes red (free)
  slide u v   as compute, but the red pebble of operand u moves to v (free)
  absorb v    some operands of v are red and v is red or untouched: they are added into v (free)
  delete v    v is red no more (free)

Sources: Hong and Kung, STOC 1981 (hong-kung); Elango et al., "On characterizing the data access complexity of
programs", POPL 2015 (no-recompute); Papp, Sobczyk and Yzelman, arXiv 2506.10854 (prbp: one operand at a time, so two
red pebbles are enough); fma: one step of an accumulator graph at a time, all its words in fast memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.pebble.graph import Graph, Step

Kind = Literal["load", "store", "compute", "slide", "absorb", "delete"]
KINDS: tuple[Kind, ...] = ("load", "store", "compute", "slide", "absorb", "delete")


@dataclass(frozen=True, slots=True)
class Move:
    """One move: its kind, its node, and for slide the operand that is left, for absorb the operands taken in."""

    kind: Kind
    node: str
    operands: tuple[str, ...] = ()

    def to_json(self) -> list[str]:
        """Return ``[kind, node, operands...]``."""
        return [self.kind, self.node, *self.operands]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """One row of the table.

    Args:
        name: how users call it.
        what: the difference to the others, one line.
        moves: the kinds of moves allowed.
        recompute: whether a node may be computed again.
        absorb: what one absorb takes in: nothing, one operand of a node, or one step of an accumulator.
    """

    name: str
    what: str
    moves: frozenset[Kind]
    recompute: bool
    absorb: Literal["nothing", "operand", "step"] = "nothing"

    @property
    def slides(self) -> bool:
        """Whether a result may take the place of an operand."""
        return "slide" in self.moves


_BASE: frozenset[Kind] = frozenset({"load", "store", "delete"})

RULES: dict[str, Rules] = {
    rules.name: rules
    for rules in (
        Rules(name="hong-kung", what="the original game: a node may be computed again", moves=_BASE | {"compute"},
              recompute=True),
        Rules(name="no-recompute", what="every node is computed once", moves=_BASE | {"compute"}, recompute=False),
        Rules(name="sliding", what="hong-kung, and a result may take the place of an operand",
              moves=_BASE | {"compute", "slide"}, recompute=True),
        Rules(name="prbp", what="partial computation: operands are absorbed one by one", moves=_BASE | {"absorb"},
              recompute=False, absorb="operand"),
        Rules(name="fma", what="accumulators of one word: a step needs its words in fast memory",
              moves=_BASE | {"absorb"}, recompute=False, absorb="step"),
    )
}  # fmt: skip


def named(name: str) -> Rules:
    """Return a row of the table; UserError with near matches for an unknown name."""
    if name not in RULES:
        raise unknown_name("rules", name, RULES)
    return RULES[name]


def steps_under(graph: Graph, rules: Rules) -> tuple[Step, ...]:
    """Return the steps that the rules let a player take one at a time.

    Raises:
        UserError: accumulators under rules that compute a node in one move.
    """
    if rules.absorb == "step":
        return graph.steps
    if graph.has_accumulators:
        node = next(graph.nodes[v] for v, own in enumerate(graph.steps_of) if len(own) > 1)
        raise UserError(f"the rules {rules.name} make a node in one move, and node {node} has several steps",
                        got=graph.name, wanted="one step a node", do="use --rules fma, or sum=chain")  # fmt: skip
    if rules.absorb == "nothing":
        return graph.steps
    return tuple(Step(step.target, (u,)) for step in graph.steps for u in step.operands)


def check_memory(graph: Graph, fast_words: int, rules: Rules) -> None:
    """Refuse a fast memory that no legal game fits, naming the node that needs more.

    A step needs its operands and its result at once; a sliding result takes an operand's place.
    """
    need, widest = 1, 0
    for step in steps_under(graph, rules):
        words = len(step.operands) + (0 if rules.slides else 1)
        if words > need:
            need, widest = words, step.target
    if fast_words < need:
        raise UserError(f"fast memory is too small for node {graph.nodes[widest]} of {graph.name}",
                        got=f"{fast_words} words", wanted=f"at least {need}: its operands"
                        + ("" if rules.slides else " and its result"), do=f"use --fast-memory {need}")  # fmt: skip
