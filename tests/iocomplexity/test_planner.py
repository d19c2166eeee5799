"""The planner: ranking, classes of ratios, limits never above counts, errors that name the least fast memory."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.hardware.catalog import load_profile
from wattention.iocomplexity.bounds.base import AlgorithmClass
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.planning.best_bound import best_bound
from wattention.iocomplexity.planning.levels import plan_levels, thresholds
from wattention.iocomplexity.planning.planner import all_schedules, best_schedule, class_of, plan
from wattention.iocomplexity.planning.regime import describe_regime, name_regime
from wattention.iocomplexity.problem.attention import Problem, attention_problem
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import FastMemoryTooSmallError

D = 64


def square(tokens: int = 1024, head_dim: int = D, **options) -> Problem:
    return attention_problem(tokens=tokens, head_dim=head_dim, **options)


MASKS = st.sampled_from(["dense", "causal", "window:1", "window:5", "longformer:window=4,global=2"])
WIDTHS = st.sampled_from([Widths(), Widths(accumulators=2), Widths(inputs=2, accumulators=2, scratch=2)])


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    tokens=st.integers(2, 40),
    key_dim=st.integers(1, 10),
    value_dim=st.integers(1, 10),
    mask=MASKS,
    group=st.sampled_from([1, 3]),
    widths=WIDTHS,
    fast_words=st.integers(6, 700),
    direction=st.sampled_from(["forward", "backward"]),
)
def test_no_bound_is_above_what_an_executed_schedule_of_its_class_moves(
    tokens: int, key_dim: int, value_dim: int, mask: str, group: int, widths: Widths, fast_words: int, direction: str
) -> None:
    problem = square(tokens, key_dim, value_dim=value_dim, mask=mask, heads=group, kv_heads=1, widths=widths)
    ran = 0
    for schedule in all_schedules():
        if schedule.direction != direction or schedule.form != "attention" or schedule.refuses(problem):
            continue
        try:
            count = execute(schedule, problem, fast_words, numbers=False).count
        except FastMemoryTooSmallError:
            continue
        ran += 1
        facts, algorithm_class = schedule.facts, class_of(schedule)
        if facts.materialises and algorithm_class is AlgorithmClass.ONCE and "panels" not in schedule.name:
            algorithm_class = AlgorithmClass.STORED
        bound = best_bound(problem, fast_words, direction=direction, algorithm_class=algorithm_class)
        assert count.words >= bound.words * (1 - 1e-9), (schedule.name, bound.active.bound.name)
    assume(ran)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_words_of_the_winner_never_grow_with_fast_memory(direction: str) -> None:
    problem = square(512, 32)
    words = [plan(problem, int(m), direction=direction).best.words for m in np.geomspace(8, 200_000, 60)]
    assert words == sorted(words, reverse=True)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_ranking_and_ratios(direction: str) -> None:
    found = plan(square(4096, 128), 24_576, direction=direction, atomics=True, saved=True)
    words = [one.words for one in found.ranked]
    assert words == sorted(words)
    for one in found.ranked:
        assert one.bound is not None
        assert one.bound.algorithm_class is one.algorithm_class
        assert one.ratio is not None
        assert one.ratio >= 1
        assert one.ratio == pytest.approx(one.words / one.bound.words)


def test_schedules_that_recompute_or_start_from_saved_scores_are_not_compared_with_e() -> None:
    found = plan(square(4096, 128), 24_576, direction="backward", atomics=True, saved=True).by_name
    for name in ("two_pass", "autograd_backward", "small_cache_backward_saved"):
        assert found[name].algorithm_class is AlgorithmClass.RECOMPUTE
        holding = {value.bound.name for value in found[name].bound.holding}
        assert holding >= {"C_b", "D_at", "D"}
        assert not holding & {"E", "E+E"}
    assert found["one_pass"].algorithm_class is AlgorithmClass.ONCE
    assert found["one_pass_atomic"].algorithm_class is AlgorithmClass.WRITE_ONLY
    assert "D" not in {value.bound.name for value in found["one_pass_atomic"].bound.holding}


def test_atomics_and_saved_scores_are_left_out_unless_asked_for() -> None:
    inside = plan(square(), 16_384, direction="backward")
    assert "autograd_backward" not in inside.by_name
    assert "one_pass_atomic" not in inside.by_name
    assert "atomics" in next(one.reason for one in inside.left_out if one.name == "one_pass_atomic")
    assert plan(square(), 16_384, direction="backward", atomics=True).best.name == "one_pass_atomic"


@pytest.mark.parametrize(
    ("per_square", "direction", "regime"),
    [
        (1 / 4, "forward", "small cache"),
        (4, "forward", "large cache"),
        (1 / 4, "backward", "small cache"),
        (1.5, "backward", "middle"),
        (4, "backward", "large cache"),
        (64, "forward", "resident"),
    ],
)
def test_regimes(per_square: float, direction: str, regime: str) -> None:
    found = plan(square(), int(per_square * D * D), direction=direction)
    assert name_regime(found) == regime
    assert f"Regime: {regime} (M = {per_square:.3g} d^2)" in describe_regime(found)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_too_little_fast_memory_names_the_least_that_works(direction: str) -> None:
    problem = square(64, 16, widths=Widths(accumulators=2))
    with pytest.raises(UserError, match=f"fast memory is too small for every {direction} schedule") as caught:
        plan(problem, 1, direction=direction)
    least = int(str(caught.value.wanted).split()[2])
    assert plan(problem, least, direction=direction).best.predicted.peak <= least
    with pytest.raises(UserError):
        plan(problem, least - 1, direction=direction)


def test_every_schedule_states_the_least_it_needs() -> None:
    problem = square(48, 6)
    for schedule in all_schedules():
        if schedule.form != "attention":
            continue
        with pytest.raises(FastMemoryTooSmallError) as caught:
            schedule.plan(problem, 1)
        least = caught.value.least_words
        schedule.plan(problem, least)
        with pytest.raises(FastMemoryTooSmallError):
            schedule.plan(problem, least - 1)


def test_heads_and_sequences_multiply() -> None:
    one, many = (plan(square(256, 32, heads=h, batch=b), 2048, direction="forward") for h, b in ((1, 1), (4, 3)))
    assert many.best.words == 12 * one.best.words
    assert many.best.ratio == pytest.approx(one.best.ratio, rel=0.05)
    assert many.best.predicted.scratch_words == one.best.predicted.scratch_words


def test_slopes_of_the_regimes() -> None:
    """Log-log slopes: M^-1 with a large cache, M^-1/2 with a small one; n^2; d^2 and d."""

    def words(tokens: int, head_dim: int, fast_words: int, name: str) -> float:
        return float(plan(square(tokens, head_dim), fast_words, direction="forward").by_name[name].words)

    def slope(first: float, second: float, factor: float = 2.0) -> float:
        return math.log(second / first) / math.log(factor)

    n, d = 65536, 128
    assert slope(words(n, d, 4 * d * d, "flash2"), words(n, d, 8 * d * d, "flash2")) == pytest.approx(-1, abs=0.03)
    small = [words(n, d, m * d * d // 64, "small_cache") for m in (1, 4)]
    assert slope(*small, 4.0) == pytest.approx(-0.5, abs=0.04)
    assert slope(words(n, d, 65536, "flash2"), words(2 * n, d, 65536, "flash2")) == pytest.approx(2, abs=0.02)
    assert slope(words(n, 64, 65536, "flash2"), words(n, 128, 65536, "flash2")) == pytest.approx(2, abs=0.05)
    assert slope(words(n, 256, 4096, "small_cache"), words(n, 512, 4096, "small_cache")) == pytest.approx(1, abs=0.07)


@pytest.mark.parametrize(
    ("per_square", "forward", "backward"),
    [(1 / 64, 1.22, 1.27), (1 / 4, 1.33, 1.44), (1, 1.37, 1.56), (2, 1.14, 1.5), (4, 1.04, 1.61), (16, 1.25, 1.75)],
)
def test_the_distance_between_best_schedule_and_best_bound_stays_what_is_documented(
    per_square: float, forward: float, backward: float
) -> None:
    """n = 16384, d = 128, among algorithms that form scores once; docs/theory prints these ratios."""
    for direction, worst in (("forward", forward), ("backward", backward)):
        found = plan(square(16384, 128), int(per_square * 128 * 128), direction=direction)
        best = found.best_of(AlgorithmClass.ONCE)
        assert best is not None
        assert best.words / found.bound(AlgorithmClass.ONCE).words <= worst


def test_room_left_over_by_whole_blocks_is_put_to_use() -> None:
    array = 1024 * D
    forward = plan(square(), int(1.99 * array), direction="forward").by_name
    assert forward["flash2_keys_kept"].words < 0.86 * forward["flash2"].words
    backward = plan(square(), int(2.95 * array), direction="backward").by_name
    assert backward["one_pass_rows_kept"].words < 0.91 * backward["one_pass"].words
    for direction, ours, textbook in (
        ("forward", "flash2_keys_kept", "flash2"),
        ("backward", "one_pass_rows_kept", "one_pass"),
    ):
        for share in (0.3, 0.55, 0.9, 1.3, 1.7, 2.5):
            found = plan(square(), int(share * array), direction=direction).by_name
            assert found[ours].words <= found[textbook].words


def test_few_keys_shared_by_many_queries_stay_in_fast_memory() -> None:
    problem = square(512, 32, heads=32, kv_heads=4)
    best = plan(problem, 512 * 2 * 32 + 200, direction="forward").best
    assert best.name == "flash2_keys_kept"
    assert best.matrix_words == best.bound.words == 4 * (2 * 512 * 8 * 32 + 2 * 512 * 32)


def test_levels_of_a_device_are_planned_one_by_one() -> None:
    plans = plan_levels(load_profile("h100-sxm"), square(2048, 256), direction="forward", word_bytes=2)
    assert [one.level.name for one in plans] == ["registers", "shared", "L2"]
    moved = [one.plan.best.words for one in plans if one.plan is not None]
    assert moved == sorted(moved, reverse=True)
    assert plans[2].plan is not None
    assert name_regime(plans[2].plan) == "resident"


@pytest.mark.parametrize(
    ("device", "word_bytes", "share", "forward", "stored"),
    [
        ("h100-sxm", 2, 1.0, 340, 215),
        ("h100-sxm", 4, 1.0, 241, 152),
        ("h100-sxm", 2, 0.5, 241, 152),
        ("a100-80", 2, 1.0, 288, 182),
        ("rtx-4090", 2, 1.0, 225, 142),
        ("t4", 2, 1.0, 181, 114),
        ("mi300x", 4, 1.0, 128, 80),
    ],
)
def test_thresholds_of_shared_memory(device: str, word_bytes: int, share: float, forward: int, stored: int) -> None:
    found = thresholds(load_profile(device), device, word_bytes=word_bytes, share=share)
    shared = next(one for one in found if one.level.name == "shared")
    assert (shared.forward_head_dim, shared.stored_gradient_head_dim) == (forward, stored)
    assert stored < shared.backward_head_dim < forward
    with pytest.raises(UserError, match="share of fast memory"):
        thresholds(load_profile(device), device, word_bytes=2, share=0)


@settings(deadline=None, max_examples=120)
@given(
    tokens=st.integers(2, 300),
    key_dim=st.integers(1, 40),
    value_dim=st.integers(1, 40),
    mask=MASKS,
    group=st.sampled_from([1, 3]),
    widths=WIDTHS,
    values_in_keys=st.booleans(),
    log_words=st.floats(0.0, 14.0),
    direction=st.sampled_from(["forward", "backward"]),
)
def test_the_best_schedule_by_itself_is_the_first_of_the_plan(
    tokens: int,
    key_dim: int,
    value_dim: int,
    mask: str,
    group: int,
    widths: Widths,
    values_in_keys: bool,
    log_words: float,
    direction: str,
) -> None:
    problem = square(
        tokens,
        key_dim,
        value_dim=min(value_dim, key_dim) if values_in_keys else value_dim,
        mask=mask,
        heads=2 * group,
        kv_heads=2,
        widths=widths,
        values_in_keys=values_in_keys,
    )
    answers = []
    for ask in (best_schedule, lambda *args, **options: plan(*args, **options).best):
        try:
            best = ask(problem, int(2**log_words), direction=direction)
            answers.append((best, best.bound))
        except UserError as refused:
            answers.append(str(refused))
    assert answers[0] == answers[1]


@settings(deadline=None, max_examples=60)
@given(
    tokens=st.integers(1, 80),
    key_dim=st.integers(1, 12),
    value_dim=st.integers(1, 12),
    mask=MASKS,
    group=st.sampled_from([1, 3]),
    widths=WIDTHS,
    fast_words=st.integers(8, 4096),
    direction=st.sampled_from(["forward", "backward"]),
)
def test_schedules_that_materialise_move_two_words_a_pair_beside_the_compulsory_ones(
    tokens: int, key_dim: int, value_dim: int, mask: str, group: int, widths: Widths, fast_words: int, direction: str
) -> None:
    """The reason why they need not be planned where another one moves less."""
    problem = square(tokens, key_dim, value_dim=value_dim, mask=mask, heads=group, kv_heads=1, widths=widths)
    try:
        found = plan(problem, fast_words, direction=direction)
    except UserError:
        assume(False)
    least = 2 * problem.pairs * widths.scratch + found.bound(AlgorithmClass.ANY).words
    for planned in found.ranked:
        assert planned.words >= least or not planned.schedule.facts.materialises, planned.name
