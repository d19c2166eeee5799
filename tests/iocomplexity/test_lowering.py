"""A lowered run is a legal game on the graph of attention, and moves the words that the machine counted."""

import pytest

from wattention.core.errors import UserError
from wattention.iocomplexity.execution.lowering import Lowered, lower
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import SCHEDULES, FastMemoryTooSmallError, Schedule

GAMES = [
    name
    for name, schedule in ((name, SCHEDULES.load(name)) for name in SCHEDULES.names())
    if schedule.form == "attention" and schedule.facts.starts_from == "nothing" and not schedule.facts.remote_adds
    and schedule.refuses(attention_problem(tokens=2, head_dim=2)) is None
]  # fmt: skip
RECOMPUTES = {name for name in GAMES if not SCHEDULES.load(name).facts.forms_scores_once}


def play(game: Lowered, fast_words: int, *, again: bool) -> tuple[int, int]:
    """Check every move by the rules; return the words moved and the most words in fast memory."""
    inputs = set(game.nodes) - {step.target for step in game.steps}
    blue, red, words, peak = set(inputs), set(), 0, 0
    todo = {(step.target, step.operands) for step in game.steps}
    for move in game.moves:
        if move.kind == "load":
            assert move.node in blue
            red.add(move.node)
        elif move.kind == "absorb":
            assert set(move.operands) <= red
            assert again or (move.node, move.operands) in todo
            todo.discard((move.node, move.operands))
            red.add(move.node)
        else:
            assert move.node in red, move
            (blue.add if move.kind == "store" else red.discard)(move.node)
        words += move.kind in {"load", "store"}
        peak = max(peak, len(red))
    assert not todo
    assert set(game.outputs) <= blue
    assert peak <= fast_words
    return words, peak


def smallest(schedule: Schedule, words: int, **sizes: object) -> tuple[int, object]:
    problem = attention_problem(**sizes)
    try:
        return words, schedule.plan(problem, words)
    except FastMemoryTooSmallError as error:
        return error.least_words, schedule.plan(problem, error.least_words)


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        (name, mask)
        for name in GAMES
        for mask in ("dense", "causal", "window:2")
        if SCHEDULES.load(name).refuses(attention_problem(tokens=3, head_dim=2, value_dim=3, mask=mask)) is None
    ],
)
def test_a_lowered_run_is_a_legal_game(name: str, mask: str) -> None:
    schedule, problem = SCHEDULES.load(name), attention_problem(tokens=3, head_dim=2, value_dim=3, mask=mask)
    words, tiles = smallest(schedule, 24, tokens=3, head_dim=2, value_dim=3, mask=mask)
    game = lower(schedule, problem, words)
    moved, _ = play(game, words, again=name in RECOMPUTES)
    assert moved == game.words == schedule.predict(problem, tiles).matrix_words
    products = 2 * (2 + 3) if schedule.direction == "forward" else 2 * (3 * 2 + 2 * 3 + 1)
    assert 2 * len(game.steps) == problem.pairs * products


def test_names_and_steps_of_the_smallest_attention() -> None:
    game = lower(SCHEDULES.load("flash2"), attention_problem(tokens=1, head_dim=1), 8)
    assert set(game.nodes) == {"Q00", "K00", "S00", "V00", "O00"}
    assert [(step.target, step.operands) for step in game.steps] == [
        ("S00", ("Q00", "K00")),
        ("O00", ("S00", "V00")),
    ]
    assert game.outputs == ("O00",)
    assert game.words == 4


def test_indices_of_two_digits_keep_names_apart() -> None:
    game = lower(SCHEDULES.load("flash2"), attention_problem(tokens=11, head_dim=1), 500)
    assert {"S1_10", "S10_1", "Q10_0"} <= set(game.nodes)


@pytest.mark.parametrize("name", ["one_pass_atomic", "autograd_backward", "small_cache_backward_saved"])
def test_what_is_no_game_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no game on the graph"):
        lower(SCHEDULES.load(name), attention_problem(tokens=2, head_dim=2), 100)


def test_words_of_one_width_only() -> None:
    problem = attention_problem(tokens=2, head_dim=2, widths=Widths(scratch=2))
    with pytest.raises(UserError, match="words of one width"):
        lower(SCHEDULES.load("flash2"), problem, 100)
