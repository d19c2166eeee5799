"""The schedules of the tightness page, executed: exact counts, exact results, and the words they save."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.iocomplexity.execution.execute import execute, verify
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import SCHEDULES, FastMemoryTooSmallError

MERGED = SCHEDULES.load("merged_backward")
N, D = 16384, 128


@pytest.mark.parametrize("name", ["merged_backward", "small_cache_raw"])
@given(
    tokens=st.integers(2, 40),
    head_dim=st.integers(1, 12),
    extra=st.sampled_from([0, 3, 40, 300]),
    mask=st.sampled_from(["dense", "causal", "window:3", "bigbird:block=2,global=1,window=1,random=1"]),
    accumulators=st.integers(1, 2),
)
@settings(deadline=None, max_examples=30)
def test_results_are_exact_and_counts_as_predicted(
    *, name: str, tokens: int, head_dim: int, extra: int, mask: str, accumulators: int
) -> None:
    schedule = SCHEDULES.load(name)
    problem = attention_problem(tokens=tokens, head_dim=head_dim, mask=mask, widths=Widths(accumulators=accumulators))
    with pytest.raises(FastMemoryTooSmallError) as error:
        schedule.plan(problem, 1)
    result = verify(schedule, problem, error.value.least_words + extra)
    assert result.counts_agree
    assert result.worst_error < 1e-10


def words_per_pair(name: str, per_square: float) -> float:
    schedule, problem = SCHEDULES.load(name), attention_problem(tokens=N, head_dim=D)
    return schedule.predict(problem, schedule.plan(problem, int(per_square * D * D))).words / N**2


@pytest.mark.parametrize("per_square", [0.5, 0.75, 1.0, 1.3, 2.0])
def test_merged_backward_moves_five_squares_and_five_words(per_square: float) -> None:
    assert words_per_pair("merged_backward", per_square) == pytest.approx(5 / per_square + 5, rel=0.025)


@pytest.mark.parametrize("per_square", [0.5, 0.75, 1.0, 1.2, 1.3])
def test_merged_backward_moves_the_fewest_words_near_d_squared(per_square: float) -> None:
    merged = words_per_pair("merged_backward", per_square)
    others = ("small_cache_backward", "hybrid_backward", "two_pass", "one_pass", "fused_backward")
    names = set(SCHEDULES.names())
    assert merged < min(words_per_pair(name, per_square) for name in others if name in names)


def test_sharing_the_pass_saves_one_word_a_pair_when_executed() -> None:
    problem, fast_words = attention_problem(tokens=384, head_dim=24), 24 * 24
    merged = execute(MERGED, problem, fast_words, numbers=False).count
    apart = execute(SCHEDULES.load("small_cache_backward"), problem, fast_words, numbers=False).count
    assert 0.8 < (apart.words - merged.words) / problem.pairs < 1.2
    assert merged.multiply_adds == apart.multiply_adds


@pytest.mark.parametrize("per_square", [1 / 64, 1 / 16, 0.25, 0.5, 0.7, 1.0])
def test_stored_scores_need_no_maxima(per_square: float) -> None:
    raw = words_per_pair("small_cache_raw", per_square)
    assert raw < min(words_per_pair("small_cache", per_square), words_per_pair("row_spill", per_square))
    x = per_square**-0.5
    leading = min(x * x, 2 * x) + 1 + min(h + x * x / h for h in range(1, 20))
    assert leading < raw < 1.09 * leading
