"""Schedules as games, beside exact optima and lower bounds: no contradiction anywhere."""

from __future__ import annotations

import pytest

from wattention.iocomplexity.pebble.bridge import (
    DIRECTIONS,
    Case,
    Direction,
    cases,
    compare_recomputation,
    confront,
    lowered_game,
    schedules_for,
)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("mask", ["dense", "causal", "101/110/011"])
@pytest.mark.parametrize("dim", [1, 2])
def test_every_schedule_is_a_legal_game_with_its_counted_words(direction: Direction, mask: str, dim: int) -> None:
    seen = set()
    for fast_words in (3, 5, 7, 9, 13, 18, 25, 40):
        case = Case(direction=direction, tokens=3, dim=dim, mask=mask, fast_words=fast_words)
        for schedule, tiles in schedules_for(case):
            game = lowered_game(case, schedule, tiles)
            assert game.verdict.legal, (schedule.name, fast_words, game.verdict.illegal)
            assert game.verdict.cost() == game.counted_words - game.idle_words, (schedule.name, fast_words)
            assert game.verdict.peak <= fast_words
            assert game.idle_words == 0 or mask != "dense"
            seen.add(schedule.name)
    assert {"forward": "flash2", "backward": "two_pass"}[direction] in seen
    assert len(seen) >= 7


def test_a_schedule_without_recomputation_plays_on_the_graph_of_the_family() -> None:
    case = Case(direction="backward", tokens=2, dim=2, mask="causal", fast_words=20)
    family = case.graph()
    wanted = {(family.nodes[s.target], frozenset(family.nodes[u] for u in s.operands), s.last) for s in family.steps}
    for schedule, tiles in schedules_for(case):
        graph = lowered_game(case, schedule, tiles).graph
        steps = {(graph.nodes[s.target], frozenset(graph.nodes[u] for u in s.operands), s.last) for s in graph.steps}
        assert schedule.name == "two_pass" or steps == wanted


@pytest.mark.parametrize(
    ("direction", "fast_words", "optimum"),
    [("forward", 3, 16), ("forward", 4, 10), ("forward", 5, 9), ("backward", 4, 32), ("backward", 8, 16)],
)
def test_optimum_schedules_and_bounds_do_not_contradict_each_other(
    direction: Direction, fast_words: int, optimum: int
) -> None:
    row = confront(Case(direction=direction, tokens=2, dim=1, mask="dense", fast_words=fast_words))
    assert row.solution.optimum == optimum
    assert row.best_schedule is not None
    assert max(words for _, words in row.bounds) <= optimum <= row.best_schedule[1]


def test_cases_stop_where_memory_holds_every_word() -> None:
    table = cases(directions=["forward"], masks=["dense"], sizes=[(2, 1)], fast_words=[3, 8, 500])
    assert [case.fast_words for case in table] == [3, 8]


def test_recomputation_buys_nothing_for_the_smallest_attention() -> None:
    row = compare_recomputation("attention:tokens=2,dim=1", 5)
    assert (row.once.optimum, row.again.optimum) == (11, 11)
