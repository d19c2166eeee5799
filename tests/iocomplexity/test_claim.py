"""Claims about traffic: impossible, impossible for a class, open, possible."""

import pytest

from wattention.core.errors import UserError
from wattention.iocomplexity.bounds.base import AlgorithmClass
from wattention.iocomplexity.planning.claim import check_claim
from wattention.iocomplexity.planning.planner import plan
from wattention.iocomplexity.problem.attention import attention_problem

PROBLEM = attention_problem(tokens=8192, head_dim=128)
FAST = 128 * 128


def test_less_than_the_inputs_is_impossible_for_anyone() -> None:
    claim = check_claim(PROBLEM, 3 * 8192 * 128, FAST, direction="forward")
    assert claim.impossible_for is AlgorithmClass.ANY
    assert "any algorithm" in claim.verdict
    assert not claim.better_schedules


def test_linear_traffic_with_a_small_cache_is_impossible_for_standard_products() -> None:
    """'Attention at the theoretical minimum, O(n d) movement' for M far below n d."""
    claim = check_claim(PROBLEM, 4 * 8192 * 128, FAST, direction="forward")
    assert claim.impossible_for is AlgorithmClass.WRITE_ONLY
    assert "standard products" in claim.verdict
    least = {v.algorithm_class: v.least_fast_words for v in claim.verdicts}
    assert least[AlgorithmClass.ANY] == 1
    assert least[AlgorithmClass.RECOMPUTE] > 8192 * 128 / 2


def test_below_every_known_schedule_is_open() -> None:
    best = plan(PROBLEM, FAST, direction="backward").best
    claim = check_claim(PROBLEM, best.words * 0.95, FAST, direction="backward")
    assert claim.impossible_for is None
    assert claim.verdict.startswith("Open: no bound forbids it")
    assert best.name in claim.verdict


def test_a_wasteful_kernel_is_told_what_moves_less() -> None:
    best = plan(PROBLEM, FAST, direction="forward").best
    claim = check_claim(PROBLEM, 2 * best.words, FAST, direction="forward")
    assert claim.verdict == f"Possible: {best.name} moves 2.00 times less."
    assert claim.better_schedules[0] == best
    assert all(one.words < claim.words for one in claim.better_schedules)
    exact = check_claim(PROBLEM, best.words, FAST, direction="forward")
    assert exact.verdict == f"Possible: {best.name} moves exactly that."


def test_only_the_narrow_class_is_excluded() -> None:
    fast = 1024  # near d^2 the limits of both classes coincide
    bounds = {c: plan(PROBLEM, fast, direction="forward").bound(c).words for c in AlgorithmClass}
    middle = (bounds[AlgorithmClass.RECOMPUTE] + bounds[AlgorithmClass.ONCE]) / 2
    claim = check_claim(PROBLEM, middle, fast, direction="forward")
    assert claim.impossible_for is AlgorithmClass.ONCE
    assert [v.possible for v in claim.verdicts] == [True, True, True, False]


def test_the_least_fast_memory_is_exact() -> None:
    words = 6e7
    claim = check_claim(PROBLEM, words, FAST, direction="forward")
    for verdict in claim.verdicts[2:]:
        least = verdict.least_fast_words
        assert plan(PROBLEM, least, direction="forward").bound(verdict.algorithm_class).words <= words
        assert plan(PROBLEM, least - 1, direction="forward").bound(verdict.algorithm_class).words > words


def test_nonsense_is_refused() -> None:
    with pytest.raises(UserError, match="claimed traffic"):
        check_claim(PROBLEM, 0, FAST, direction="forward")
