"""Every schedule of the folder: exact results, exact counts, room kept, and more memory never costs words."""

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.iocomplexity import parts, schedules
from wattention.iocomplexity.execution.execute import execute, verify
from wattention.iocomplexity.execution.trace import Recorder
from wattention.iocomplexity.problem.attention import Problem, attention_problem
from wattention.iocomplexity.problem.masks import CellMask, Mask, causal, dense, global_window_random, window
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import SCHEDULES, FastMemoryTooSmallError, Schedule

NAMES = SCHEDULES.names()


@cache
def schedule_of(name: str) -> Schedule:
    return SCHEDULES.load(name)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    queries, keys = draw(st.integers(1, 16)), draw(st.integers(1, 16))
    width = st.integers(1, 3)
    return Problem(
        query_tokens=queries, key_tokens=keys, key_dim=draw(st.integers(1, 12)), value_dim=draw(st.integers(1, 12)),
        mask=draw(masks_of(queries, keys)), heads=draw(st.integers(1, 2)), kv_heads=1,
        widths=Widths(inputs=draw(width), accumulators=draw(width), scratch=draw(width),
                      statistics=draw(st.sampled_from([None, 0, 1, 2]))),
    )  # fmt: skip


def masks_of(queries: int, keys: int) -> st.SearchStrategy[Mask]:
    bits = st.lists(st.booleans(), min_size=queries * keys, max_size=queries * keys)
    return st.one_of(
        st.just(dense(queries, keys)),
        st.just(causal(queries, keys)),
        st.integers(1, 6).map(lambda width: window(queries, keys, width)),
        st.integers(0, 9).map(lambda seed: global_window_random(
            queries, keys, block=2, global_blocks=0, window_blocks=1, random_blocks=1, seed=seed)),
        bits.map(lambda b: CellMask("any", queries, keys, np.array(b).reshape(queries, keys))),
    )  # fmt: skip


def least_words(schedule: Schedule, problem: Problem) -> int:
    try:
        schedule.plan(problem, 1)
    except FastMemoryTooSmallError as error:
        return error.least_words
    return 1


def accepted(schedule: Schedule, mask: str) -> Problem:
    """A small problem with this mask, or the nearest the schedule does not refuse."""
    choices = [(mask, False), (mask, True), ("causal", False), ("dense", False)]
    problems = (attention_problem(tokens=5, head_dim=3, mask=m, values_in_keys=tied) for m, tied in choices)
    return next(problem for problem in problems if schedule.refuses(problem) is None)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(deadline=None, max_examples=30)
def test_results_are_exact_and_counts_are_predicted(name: str, data: st.DataObject) -> None:
    schedule, problem = schedule_of(name), data.draw(problems())
    if schedule.refuses(problem) is not None:
        return
    words = least_words(schedule, problem) + data.draw(st.sampled_from([0, 1, 7, 30, 100, 400, 3000]))
    result = verify(schedule, problem, words)
    counted = result.execution.count
    assert counted.difference(result.predicted) == {}
    assert counted.peak <= result.predicted.peak <= words
    if problem.mask.is_dense:
        assert counted.peak == result.predicted.peak
    assert result.worst_error < 1e-10
    assert execute(schedule, problem, words, numbers=False).count == counted


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_more_memory_never_costs_words(name: str, data: st.DataObject) -> None:
    schedule, problem = schedule_of(name), data.draw(problems())
    if schedule.refuses(problem) is not None:
        return
    least = least_words(schedule, problem)
    sizes = sorted(data.draw(st.lists(st.integers(least, least + 2000), min_size=2, max_size=5)))
    words = [schedule.predict(problem, schedule.plan(problem, size)).words for size in sizes]
    slack = PANEL_SLACK if "panels" in name else 1.0
    assert all(later <= slack * earlier for earlier, later in pairwise(words))


# panels trade words for scratch, and a panel is a whole number of blocks: its share of the words is not monotone
PANEL_SLACK = 1.5


@pytest.mark.parametrize("name", NAMES)
def test_least_words_are_least(name: str) -> None:
    schedule = schedule_of(name)
    problem = accepted(schedule, "dense")
    least = least_words(schedule, problem)
    execute(schedule, problem, least)
    with pytest.raises(FastMemoryTooSmallError, match=f"at least {least} words") as error:
        schedule.plan(problem, least - 1)
    assert f"the schedule {name} does not fit" in str(error.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mask", ["dense", "bigbird:block=1,global=0,window=1,random=1"])
def test_the_literal_run_is_the_same_run(name: str, mask: str) -> None:
    """Word by word, as the address trace sees it: same numbers, same counts."""
    schedule = schedule_of(name)
    problem = accepted(schedule, mask)
    words = least_words(schedule, problem) + 12
    fast = execute(schedule, problem, words)
    literal = execute(schedule, problem, words, observer=Recorder(align_words=1, word_by_word=True))
    assert fast.count.difference(literal.count) == {}
    assert literal.count.peak <= fast.count.peak  # with a mask, a held column has live rows only
    assert literal.count.peak == fast.count.peak or not problem.mask.is_dense
    for output, values in fast.outputs.items():
        np.testing.assert_allclose(literal.outputs[output], values, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_tells_its_own_name(name: str) -> None:
    schedule = schedule_of(name)
    assert schedule.name == name
    assert schedule.title
    assert schedule.source


ALGORITHMS = [path for room in (schedules, parts) for path in sorted(Path(room.__file__).parent.glob("*.py"))]
NOT_FOR_PROGRAMS = {
    "values",
    "add_numbers",
    "set_score_gradient",
    "_set",
    "read",
    "write",
    "result",
    "_slow",
    "array",
    "_ledger",
    "ledger",
}


@pytest.mark.parametrize("path", ALGORITHMS, ids=lambda path: path.stem)
def test_algorithms_touch_numbers_through_tiles_only(path: Path) -> None:
    """No number leaves fast memory through NumPy, and no traffic is counted by hand."""
    used = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    exempt = {"values"} if path.stem in EXEMPT else set()
    assert used & (NOT_FOR_PROGRAMS - exempt) == set()


EXEMPT = {"input_side", "input_side_gradient"}  # dict.values of their plans


def test_schedules_never_import_each_other() -> None:
    folder = Path(schedules.__file__).parent
    for path in folder.glob("*.py"):
        imported = {n.module for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)}
        own = {module for module in imported if module and module.startswith("wattention.iocomplexity.schedules")}
        assert own <= {"wattention.iocomplexity.schedules.base"}, path.stem


def test_scores_far_beyond_exp_stay_finite() -> None:
    problem = attention_problem(tokens=12, head_dim=4)
    draw = np.random.default_rng(1)
    arrays = {name: 100 * draw.standard_normal((12, 4)) for name in ("Q", "K", "V", "dO")}
    for name in NAMES:
        schedule = schedule_of(name)
        if schedule.refuses(problem) is None and schedule.form == "attention":
            outputs = execute(schedule, problem, 200, arrays=arrays).outputs
            assert all(np.isfinite(values).all() for key, values in outputs.items() if key in {"O", "dQ", "dK", "dV"})


def test_refusals_say_why() -> None:
    problem = attention_problem(tokens=4, head_dim=3, values_in_keys=True)
    with pytest.raises(UserError, match="gradients would be one array"):
        execute(schedule_of("one_pass"), problem, 1000)


def test_an_unknown_schedule_has_neighbours() -> None:
    with pytest.raises(UserError, match="did you mean flash"):
        SCHEDULES.load("flash3")
