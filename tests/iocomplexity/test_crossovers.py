"""Where one schedule overtakes another, in units of d^2, and along a curve."""

import pytest

from wattention.core.errors import UserError
from wattention.iocomplexity.planning.crossovers import crossover
from wattention.iocomplexity.planning.curve import trace_curve
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.widths import Widths

D = 128
PROBLEM = attention_problem(tokens=16384, head_dim=D)
MATRICES_ONLY = attention_problem(tokens=16384, head_dim=D, widths=Widths(statistics=0))


@pytest.mark.parametrize(
    ("before", "after", "expected", "low", "high"),
    [  # predicted by leading terms: 1, 2/3, 5, 1, 2.5, 3.5
        ("small_cache", "flash2", 1.01, 0.2, 4),
        ("fused", "flash2", 0.68, 0.2, 4),
        ("small_cache", "flash1", 5.97, 2, 16),
        ("small_cache_backward", "hybrid_backward", 1.05, 0.3, 3),
        ("hybrid_backward", "two_pass", 2.57, 1, 8),
        ("hybrid_backward", "one_pass", 3.53, 1, 8),
    ],
)
def test_known_crossovers(before: str, after: str, expected: float, low: float, high: float) -> None:
    found = crossover(MATRICES_ONLY, before, after, low=int(low * D * D), high=int(high * D * D))
    assert found.per_square(D) == pytest.approx(expected, rel=0.03)


def test_statistics_make_the_small_cache_forward_end_earlier() -> None:
    """Scores stored as exp(S - tile maximum) move the maxima too: the forward changes at 0.90 d^2, not at d^2."""
    found = crossover(PROBLEM, "small_cache", "flash2", low=D * D // 4, high=2 * D * D)
    assert found.per_square(D) == pytest.approx(0.90, abs=0.01)


def test_bad_questions_are_refused() -> None:
    with pytest.raises(UserError, match="flash2 does not overtake small_cache in this range"):
        crossover(PROBLEM, "small_cache", "flash2", low=4 * D * D, high=8 * D * D)
    with pytest.raises(UserError, match="did you mean flash2"):
        crossover(PROBLEM, "small_cache", "flash3", low=100, high=1000)


def test_a_curve_never_rises_and_stays_above_its_bounds() -> None:
    problem = attention_problem(tokens=1024, head_dim=64)
    for direction in ("forward", "backward"):
        curve = trace_curve(problem, direction=direction, points=25, devices=["t4", "mi300x"])
        assert curve.fast_words == tuple(sorted(curve.fast_words))
        assert list(curve.best.words) == sorted(curve.best.words, reverse=True)
        wide = next(line for line in curve.bounds if line.name == "recompute")
        assert all(bound <= best for bound, best in zip(wide.words, curve.best.words, strict=True))
        assert [c.before for c in curve.crossings][1:] == [c.after for c in curve.crossings][:-1]
        assert curve.winners[0] == curve.crossings[0].before
        assert {mark.label for mark in curve.marks} >= {"t4, mi300x shared"}


def test_a_curve_skips_what_does_not_fit_and_refuses_an_empty_range() -> None:
    problem = attention_problem(tokens=64, head_dim=16)
    curve = trace_curve(problem, direction="backward", low=1, high=4000, points=12)
    assert curve.fast_words[0] > 1
    with pytest.raises(UserError, match="range of the curve"):
        trace_curve(problem, direction="forward", low=100, high=100)
