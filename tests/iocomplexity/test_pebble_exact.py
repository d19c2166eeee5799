"""Optima: published values, two independent oracles, and what must hold on any graph."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.pebble_oracles import cp_sat, shortest_path
from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.exact import Solution, solve
from wattention.iocomplexity.pebble.graph import Graph, build, compulsory
from wattention.iocomplexity.pebble.graphs.family import parse
from wattention.iocomplexity.pebble.heuristic import pebble
from wattention.iocomplexity.pebble.rules import RULES, check_memory, named
from wattention.iocomplexity.pebble.verify import verify


def optimum(spec: str, rules: str, fast_words: int, **options: float) -> int:
    graph = parse(spec, sum="word" if rules == "fma" else "chain")
    solution = solve(graph, fast_words, named(rules), **options)  # type: ignore[arg-type]
    assert solution.proved, solution
    verdict = verify(graph, solution.moves, fast_words, named(rules))
    assert verdict.legal
    assert verdict.cost() == solution.optimum == solution.loads + solution.stores
    return solution.cost


@pytest.mark.parametrize("rules", ["no-recompute", "hong-kung"])
@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("matmul:m=2,k=2,n=2", {4: 17, 5: 14, 6: 13, 7: 12, 9: 12}),
        ("attention:tokens=2,dim=1", {4: 16, 5: 11, 6: 10, 8: 8, 9: 8}),
    ],
)
def test_the_optima_of_the_smallest_products_and_attentions(rules: str, spec: str, values: dict[int, int]) -> None:
    assert {m: optimum(spec, rules, m) for m in values} == values


@pytest.mark.parametrize(
    ("spec", "values"),
    [("matmul:m=2,k=2,n=2", {3: 17, 4: 14, 6: 12}), ("attention:tokens=2,dim=1", {3: 16, 4: 10, 5: 9, 6: 8})],
)
def test_the_optima_with_accumulators(spec: str, values: dict[int, int]) -> None:
    assert {m: optimum(spec, "fma", m) for m in values} == values


def test_attention_of_36_nodes_is_proved_for_every_memory_of_interest() -> None:
    values = {m: optimum("attention:tokens=2,dim=2", "no-recompute", m) for m in range(4, 9)}
    assert values == {4: 38, 5: 24, 6: 22, 7: 20, 8: 16}


def test_the_45_nodes_of_a_3x3x3_product_are_proved() -> None:
    values = {m: optimum("matmul:m=3,k=3,n=3", "no-recompute", m) for m in (4, 8, 12)}
    assert values == {4: 63, 8: 35, 12: 29}


def test_the_search_finds_optima_that_the_heuristic_was_not_shown() -> None:
    for rules, fast_words in (("no-recompute", 5), ("hong-kung", 5), ("sliding", 4), ("prbp", 3), ("fma", 4)):
        assert optimum("matmul", rules, fast_words, effort=0.0) == 14


def test_the_moves_are_found_again_through_symmetric_states() -> None:
    # the heuristic plays no game of cost 4 here, so the move list comes from the search
    assert optimum("diamond:rows=5", "sliding", 4, effort=0.0) == 4


def test_symmetry_changes_the_work_and_not_the_optimum() -> None:
    graph = parse("matmul:m=3,k=2,n=2")
    for rules in ("no-recompute", "sliding"):
        alone, with_orbits = (solve(graph, 5, named(rules), orbits=n) for n in (1, 512))
        assert alone.optimum == with_orbits.optimum
        assert with_orbits.states < alone.states


def test_recomputation_pays_where_two_readers_of_a_cheap_value_are_far_apart() -> None:
    # x is computed from one input that is red anyway; keeping it blocks a word, storing it costs two moves
    made_from = {"a": [], "x": [["a"]], **{f"p{i}": [] for i in range(2)}}
    made_from |= {"y": [["x", "p0"]], "z": [["y", "p1"]], "w": [["z", "a"]], "out": [["w", "x"]]}
    graph = build("far readers", made_from, ["out"])
    once, again = (solve(graph, 3, named(rules)) for rules in ("no-recompute", "hong-kung"))
    assert once.proved
    assert again.proved
    assert again.cost < once.cost == shortest_path(graph, 3, named("no-recompute"))
    assert again.cost == shortest_path(graph, 3, named("hong-kung"))


@st.composite
def graphs(draw: st.DrawFn, *, largest: int = 7, accumulators: bool = False) -> Graph:
    inputs = draw(st.integers(1, 3))
    made_from: dict[str, list[list[str]]] = {f"i{k}": [] for k in range(inputs)}
    for k in range(draw(st.integers(1, largest - inputs))):
        names = list(made_from)
        steps = draw(st.integers(1, 2 if accumulators else 1))
        rows = st.lists(st.sampled_from(names), min_size=1, max_size=3 if not accumulators else 2, unique=True)
        terms = draw(st.lists(rows, min_size=steps, max_size=steps, unique_by=frozenset))
        made_from[f"n{k}"] = terms
    names = [name for name in made_from if name.startswith("n")]
    outputs = draw(st.sets(st.sampled_from(names), min_size=1, max_size=3))
    return build("random", made_from, sorted(outputs | {names[-1]}))


COSTS = st.sampled_from([(1, 1), (1, 2), (3, 1), (2, 1), (0, 1), (1, 0)])
HYPOTHESIS = settings(
    deadline=None,
    max_examples=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def smallest_memory(graph: Graph, rules: str) -> int:
    for fast_words in range(1, 9):
        try:
            check_memory(graph, fast_words, named(rules))
        except UserError:
            continue
        return fast_words
    raise AssertionError("no memory is enough")


@pytest.mark.parametrize("rules", sorted(RULES))
@HYPOTHESIS
@given(data=st.data())
def test_the_optimum_is_the_shortest_path_over_single_moves(rules: str, data: st.DataObject) -> None:
    largest = {"hong-kung": 7, "sliding": 7, "no-recompute": 7, "prbp": 6, "fma": 6}[rules]
    graph = data.draw(graphs(largest=largest, accumulators=rules == "fma"))
    fast_words = smallest_memory(graph, rules) + data.draw(st.integers(0, 1))
    load_cost, store_cost = data.draw(COSTS)
    table = named(rules)
    solution = solve(graph, fast_words, table, load_cost=load_cost, store_cost=store_cost, effort=0.0)
    assert solution.optimum == shortest_path(graph, fast_words, table, load_cost, store_cost)


@HYPOTHESIS
@given(graph=graphs(largest=14))
def test_more_freedom_never_costs_more(graph: Graph) -> None:
    costs: dict[tuple[str, int], int] = {}
    for rules in ("no-recompute", "hong-kung", "sliding", "prbp"):
        least = smallest_memory(graph, rules)
        for fast_words in (least, least + 1, least + 3):
            solution = solve(graph, fast_words, named(rules), effort=0.0)
            rough = verify(graph, pebble(graph, fast_words, named(rules), effort=0.0), fast_words, named(rules))
            assert compulsory(graph) <= solution.lower_bound == solution.cost <= rough.cost()
            costs[rules, fast_words] = solution.cost
        assert costs[rules, least] >= costs[rules, least + 1] >= costs[rules, least + 3]
    for (rules, fast_words), cost in costs.items():
        if rules == "no-recompute":
            assert costs.get(("hong-kung", fast_words), 0) <= cost
            assert costs.get(("prbp", fast_words), 0) <= cost
        if rules == "hong-kung":
            assert costs.get(("sliding", fast_words), 0) <= cost


@pytest.mark.parametrize(
    ("spec", "rules", "fast_words", "spare"),
    [
        ("matmul:m=2,k=2,n=2", "no-recompute", 4, 0),
        ("matmul:m=1,k=2,n=3", "fma", 3, 0),
        ("attention:tokens=2,dim=1,mask=causal", "fma", 3, 0),
        ("fft:points=4", "no-recompute", 3, 0),
        ("diamond:rows=4", "no-recompute", 3, 0),
        ("tree:leaves=4", "prbp", 2, 0),
        ("diamond:rows=3", "hong-kung", 3, 2),
        ("tree:leaves=8", "hong-kung", 3, 1),
    ],
)
def test_a_constraint_solver_agrees(spec: str, rules: str, fast_words: int, spare: int) -> None:
    pytest.importorskip("ortools", reason="ortools is not installed")
    graph = parse(spec, sum="word" if rules == "fma" else "chain")
    assert len(graph) <= 16
    assert cp_sat(graph, fast_words, named(rules), spare) == optimum(spec, rules, fast_words)


def limited(**limits: float) -> Solution:
    graph = parse("attention:tokens=2,dim=2")
    solution = solve(graph, 4, named("hong-kung"), **limits)  # type: ignore[arg-type]
    assert verify(graph, solution.moves, 4, named("hong-kung")).legal
    assert not solution.proved
    assert solution.optimum is None
    assert compulsory(graph) <= solution.lower_bound < solution.cost
    return solution


def test_at_the_time_limit_it_answers_with_what_is_proved() -> None:
    assert limited(time_limit_s=0.0).stopped == "time"


def test_at_the_memory_limit_it_answers_with_what_is_proved() -> None:
    solution = limited(memory_limit_bytes=3 << 20)
    assert solution.stopped == "memory"
    assert solution.lower_bound > compulsory(parse("attention:tokens=2,dim=2"))


@pytest.mark.parametrize("rules", ["hong-kung", "no-recompute", "fma"])
def test_nodes_of_many_operands_stop_at_the_memory_limit_without_harm(rules: str) -> None:
    made_from: dict[str, list[list[str]]] = {f"i{k}": [] for k in range(24)}
    made_from |= {f"s{k}": [[f"i{k}"]] for k in range(24)}
    made_from |= {"even": [[f"s{k}" for k in range(0, 24, 2)]], "odd": [[f"s{k}" for k in range(1, 24, 2)]]}
    made_from |= {"all": [[f"s{k}" for k in range(24)]]}
    graph = build("wide", made_from, ["even", "odd", "all"])
    solution = solve(graph, 25, named(rules), effort=0.1, memory_limit_bytes=1 << 16, time_limit_s=5)
    assert solution.lower_bound <= solution.cost
    assert verify(graph, solution.moves, 25, named(rules)).legal


def test_beyond_64_nodes_the_bound_is_the_compulsory_traffic() -> None:
    graph = parse("matmul:m=4,k=4,n=4")
    solution = solve(graph, 8, named("no-recompute"), effort=0.1)
    assert (solution.stopped, solution.states) == ("size", 0)
    assert solution.lower_bound == 48 < solution.cost


def test_a_memory_for_everything_needs_no_search() -> None:
    solution = solve(parse("matmul:m=4,k=4,n=4"), 200, named("hong-kung"), effort=0.0)
    assert solution.optimum == 48


@pytest.mark.parametrize("price", [-1, 1001])
def test_costs_have_limits(price: int) -> None:
    with pytest.raises(UserError, match="bad load_cost"):
        solve(parse("matmul"), 4, named("hong-kung"), load_cost=price)
