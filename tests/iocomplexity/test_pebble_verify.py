"""The referee: every rule broken once, and mutated games that must be refused or cost more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.exact import solve
from wattention.iocomplexity.pebble.graph import build
from wattention.iocomplexity.pebble.graphs.family import parse
from wattention.iocomplexity.pebble.rules import RULES, Move, named
from wattention.iocomplexity.pebble.verify import moves_from_json, verify

PAIR = build("pair", {"a": [], "b": [], "c": [["a", "b"]], "d": [["c"]]}, ["d"])


def moves(text: str) -> list[Move]:
    return [Move(kind, node, tuple(rest)) for kind, node, *rest in (line.split() for line in text.split(","))]  # type: ignore[arg-type]


GOOD = "load a,load b,compute c,delete a,compute d,store d"


def test_a_legal_game_is_counted() -> None:
    verdict = verify(PAIR, moves(GOOD), 3, named("no-recompute"))
    assert (verdict.legal, verdict.loads, verdict.stores, verdict.peak, verdict.at) == (True, 2, 1, 3, None)
    assert verdict.cost(load_cost=2, store_cost=5) == 9


@pytest.mark.parametrize(
    ("text", "rules", "at", "says"),
    [
        ("load c", "hong-kung", 0, "c is not in slow memory"),
        ("store a", "hong-kung", 0, "a is not red"),
        ("delete a", "hong-kung", 0, "a is not red"),
        ("load a,compute c", "hong-kung", 1, "operand b is not red"),
        ("load a,compute a", "hong-kung", 1, "a is an input"),
        ("load a,load b,compute c,compute d", "hong-kung", 3, "4 red pebbles, and fast memory holds 3"),
        ("load a,load b,compute c,delete c,compute c", "no-recompute", 4, "c was computed before"),
        ("load a,load b,slide c a", "hong-kung", 2, "the rules hong-kung have no such move"),
        ("load a,load b,slide c d", "sliding", 2, "a pebble slides to c from one of its operands"),
        ("load a,load b,compute c,delete a,compute d", "hong-kung", 5, "at the end output d is not in slow memory"),
        ("load a,compute c", "prbp", 1, "the rules prbp have no such move"),
        ("load a,absorb c b", "prbp", 1, "operand b is not red"),
        ("load a,absorb c a,absorb c a", "prbp", 2, "c has no step left with these operands"),
        ("load a,absorb c a,absorb d c", "prbp", 2, "operand c is not complete"),
        ("load a,absorb c a,delete c,load b,absorb c b", "prbp", 4, "c was begun and is not red"),
        ("load a,absorb c a,store c,load b,absorb c b,delete c,load c", "prbp", 6, "c is not in slow memory"),
        ("load a,absorb c a", "fma", 1, "c has no step left with these operands"),
    ],
)
def test_the_first_illegal_move_is_named(text: str, rules: str, at: int, says: str) -> None:
    verdict = verify(PAIR, moves(text), 3, named(rules))
    assert verdict.at == at
    assert says in str(verdict.illegal)


def test_a_last_step_waits_for_the_others() -> None:
    graph = build("last", {"a": [], "b": [], "c": [["a"], ["b"]]}, ["c"], last=[("c", 1)])
    early = verify(graph, moves("load b,absorb c b"), 2, named("fma"))
    assert "the last step of c waits for its other steps" in str(early.illegal)
    assert verify(graph, moves("load a,absorb c a,delete a,load b,absorb c b,store c"), 2, named("fma")).legal


def test_sliding_moves_the_pebble() -> None:
    verdict = verify(PAIR, moves("load a,load b,slide c a,slide d c,store d"), 2, named("sliding"))
    assert (verdict.legal, verdict.peak) == (True, 2)


CASES = [
    (spec, rules, fast_words)
    for spec, fast_words in (("matmul:m=2,k=2,n=1", 4), ("attention:tokens=2,dim=1", 5), ("diamond:rows=3", 3))
    for rules in sorted(RULES)
]


@pytest.mark.parametrize(("spec", "rules", "fast_words"), CASES)
@settings(deadline=None, max_examples=25, derandomize=True)
@given(data=st.data())
def test_a_mutated_game_is_refused_or_costs_no_less(
    spec: str, rules: str, fast_words: int, data: st.DataObject
) -> None:
    graph = parse(spec, sum="word" if rules == "fma" else "chain")
    table = named(rules)
    solution = solve(graph, fast_words, table, effort=0.0)
    game = list(solution.moves)
    kind = data.draw(st.sampled_from(["drop", "swap", "duplicate"]))
    at = data.draw(st.integers(0, len(game) - 2))
    if kind == "drop":
        mutant = game[:at] + game[at + 1 :]
    elif kind == "swap":
        mutant = [*game[:at], game[at + 1], game[at], *game[at + 2 :]]
    else:
        mutant = [*game[:at], game[at], *game[at:]]
    verdict = verify(graph, mutant, fast_words, table)
    removed = game[at]
    if kind == "drop" and removed.kind in {"load", "store"}:
        assert not verdict.legal
    if kind == "drop" and removed.kind in {"compute", "absorb", "slide"}:
        assert not verdict.legal
    if verdict.legal:
        assert verdict.cost() >= solution.cost
        if kind == "duplicate" and removed.kind in {"load", "store"}:
            assert verdict.cost() == solution.cost + 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[["load", "a"],\n["lode", "a"]]', "unknown kind of move"),
        ('[["load", "a"],\n["load" "a"]]', "line 2: malformed JSON"),
        ('[["load"]]', "entry 0 of moves is not a move"),
        ('{"cost": 3}', "moves is not a list of moves"),
    ],
)
def test_bad_move_lists_are_refused(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        moves_from_json(text)


def test_an_unknown_node_in_a_move_is_named() -> None:
    with pytest.raises(UserError, match="unknown node of pair"):
        verify(PAIR, moves("load zz"), 3, named("hong-kung"))


def test_rules_and_graphs_that_do_not_suit_each_other() -> None:
    with pytest.raises(UserError, match="use --rules fma, or sum=chain"):
        verify(parse("matmul:sum=word"), [], 4, named("hong-kung"))
    with pytest.raises(UserError, match="did you mean sliding"):
        named("slidin")
