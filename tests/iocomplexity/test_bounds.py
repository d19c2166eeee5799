"""The theorems as numbers: closed forms, published values, classes, conditions, and what combines them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.iocomplexity.algorithm_class import AlgorithmClass
from wattention.iocomplexity.best_bound import all_bounds, best_bound
from wattention.iocomplexity.bounds import BOUNDS
from wattention.iocomplexity.bounds.literature import SHAPES
from wattention.iocomplexity.bounds.matmul import cosma_words, smith_words
from wattention.iocomplexity.problem import Problem, Widths, attention_problem

BY_NAME = {bound.name: bound for bound in all_bounds()}
N, D = 16384, 128


def square(tokens: int = N, head_dim: int = D, **options) -> Problem:
    return attention_problem(tokens=tokens, head_dim=head_dim, **options)


def words_per_pair(name: str, fast_words: float) -> float:
    return BY_NAME[name].words(square(), int(fast_words)) / N**2


def test_every_theorem_says_what_it_is() -> None:
    assert len(BY_NAME) == len(BOUNDS.names())
    for bound in all_bounds():
        assert bound.statement
        assert bound.tight_up_to
        assert "docs/theory/" in bound.source or "arXiv" in bound.source


@pytest.mark.parametrize(
    ("per_square", "once", "recompute", "backward_once", "backward_recompute"),
    [  # n = 16384, d = 128: columns of the project's table of asymptotic values
        (1 / 64, 31.00, None, 71.57, 46.52),
        (1 / 16, 15.00, None, 34.78, 22.55),
        (1 / 4, 7.00, None, 16.39, 10.59),
        (1, 3.00, 2.12, 7.20, 4.68),
        (2, 1.83, None, 4.50, 3.00),
        (4, 1.00, None, 2.60, 1.85),
        (16, 0.23, None, 0.62, 0.62),
    ],
)
def test_known_values(
    per_square: float, once: float, recompute: float | None, backward_once: float, backward_recompute: float
) -> None:
    fast_words = int(per_square * D * D)

    def largest(*names: str) -> float:
        return max(words_per_pair(name, fast_words) for name in names)

    assert largest("C_f", "A", "B", "B'") == pytest.approx(once, abs=0.011)
    if recompute is not None:
        assert largest("C_f", "A", "B'") == pytest.approx(recompute, abs=0.011)
    assert largest("C_b", "D", "E") == pytest.approx(backward_once, abs=0.011)
    assert largest("C_b", "D") == pytest.approx(backward_recompute, abs=0.011)


@pytest.mark.parametrize("per_square", [1 / 16, 1 / 4, 1, 2, 9, 30])
def test_the_integer_search_is_at_least_the_closed_form(per_square: float) -> None:
    fast = int(per_square * D * D)
    pairs, square_dim = N * N, D * D
    x = D / math.sqrt(fast)
    closed = {
        "A": 4 * pairs * square_dim / (fast + square_dim) - (fast + square_dim)
        if fast >= square_dim
        else 2 * pairs * x - 2 * fast,
        "B": 4 * pairs * x - pairs - 2 * fast,
        "D": 12 * pairs * square_dim / (fast + 4 * square_dim) - (fast + 4 * square_dim),
        "E": (3 * math.sqrt(3) + 4) * x * pairs - 2 * pairs - 2 * fast,
        "B+E": 4 * pairs * x - 2 * fast,
        "A_at": 4 * pairs * square_dim / (2 * fast + square_dim) - (2 * fast + square_dim)
        if 2 * fast >= square_dim
        else 0,
        "D_at": 12 * pairs * square_dim / (2 * fast + 4 * square_dim) - (2 * fast + 4 * square_dim),
    }
    for name, value in closed.items():
        assert BY_NAME[name].words(square(), fast) >= value * (1 - 1e-9), name


def test_compulsory_traffic_of_the_three_plain_masks() -> None:
    n, d = 64, 8
    forward, backward = BY_NAME["C_f"], BY_NAME["C_b"]
    dense, causal, diagonal = (square(n, d, mask=mask) for mask in ("dense", "causal", "window:1"))
    assert [forward.words(p, 9) for p in (dense, causal, diagonal)] == [4 * n * d, 4 * n * d - d, 2 * n * d]
    assert [backward.words(p, 9) for p in (dense, causal, diagonal)] == [7 * n * d, 7 * n * d - d, 4 * n * d]


def test_a_diagonal_mask_leaves_only_compulsory_traffic() -> None:
    problem = square(64, 8, mask="window:1")
    assert problem.choice_pairs == 0
    for direction in ("forward", "backward"):
        found = best_bound(problem, 5, direction=direction)
        assert found.words == found.holding[0].bound.words(problem, 5) > 0
        assert found.active.bound.algorithm_class is AlgorithmClass.ANY


@pytest.mark.parametrize(("half_kib", "expected"), [(227, 3.52), (113.5, 5.39), (163, 4.34), (99, 5.85), (64, 7.51)])
def test_absorbed_mla_on_shared_memories(half_kib: float, expected: float) -> None:
    n = 65536
    problem = attention_problem(tokens=n, head_dim=576, value_dim=512, values_in_keys=True)
    found = best_bound(problem, int(half_kib * 512), direction="forward")
    assert BY_NAME["B_MLA"].words(problem, int(half_kib * 512)) / n**2 == pytest.approx(expected, abs=0.01)
    assert {value.bound.name for value in found.holding} >= {"C_f", "A_MLA", "B_MLA"}
    assert {e.bound.name for e in found.excluded} >= {"A", "B", "B'"}
    with pytest.raises(UserError, match="no lower bound is known for the backward pass"):
        best_bound(problem, 1000, direction="backward")


def test_classes_are_nested() -> None:
    problem, fast = square(4096, 64), 64 * 64
    words = [best_bound(problem, fast, direction="forward", algorithm_class=c).words for c in AlgorithmClass]
    assert words == sorted(words)
    assert AlgorithmClass.ANY.covers(AlgorithmClass.STORED)
    assert not AlgorithmClass.ONCE.covers(AlgorithmClass.RECOMPUTE)
    assert AlgorithmClass.named("once") is AlgorithmClass.ONCE
    with pytest.raises(UserError, match="did you mean once"):
        AlgorithmClass.named("onc")


def test_the_answer_says_which_bound_is_active_and_why_others_do_not_apply() -> None:
    found = best_bound(square(), D * D, direction="backward", algorithm_class=AlgorithmClass.RECOMPUTE)
    assert {value.bound.name for value in found.holding} >= {"C_b", "D_at", "D"}
    assert found.words == max(value.words for value in found.holding)
    reasons = {e.bound.name: e.reason for e in found.excluded}
    assert "formed once" in reasons["E"]
    assert found.quantity.origin == "bound"
    assert found.active.bound.name in found.quantity.source
    with pytest.raises(UserError, match="words of fast memory"):
        best_bound(square(), 0, direction="forward")


def test_heads_share_one_subtractive_term() -> None:
    fast = 400
    for name in ("A", "B", "B'", "D", "E"):
        one, many = square(512, 32), square(512, 32, heads=8, batch=2)
        assert BY_NAME[name].words(many, fast) >= 16 * BY_NAME[name].words(one, fast)


def test_grouped_queries_are_more_rows_over_the_same_keys() -> None:
    grouped = square(128, 16, heads=8, kv_heads=2)
    assert BY_NAME["C_f"].words(grouped, 9) == 2 * (4 * 128 * 2 * 16 + 128 * 2 * 16)
    stacked = attention_problem(tokens=512, key_tokens=128, head_dim=16, batch=2)
    for name in ("A", "B", "D", "E", "C_b"):
        assert BY_NAME[name].words(grouped, 100) == BY_NAME[name].words(stacked, 100)


def test_wider_words_cost_what_they_weigh() -> None:
    plain = square(512, 32)
    wide = square(512, 32, widths=Widths(inputs=2, accumulators=2, scratch=2))
    mixed = square(512, 32, widths=Widths(accumulators=2))
    for name in ("A", "B", "E", "C_f"):
        assert BY_NAME[name].words(wide, 512) == 2 * BY_NAME[name].words(plain, 256)
        assert BY_NAME[name].words(mixed, 512) == BY_NAME[name].words(plain, 512)


@settings(deadline=None, max_examples=40)
@given(
    tokens=st.integers(2, 60),
    head_dim=st.integers(1, 12),
    value_dim=st.integers(1, 12),
    mask=st.sampled_from(["dense", "causal", "window:3"]),
    fast=st.integers(3, 300),
)
def test_bounds_are_finite_never_negative_and_fall_with_m(
    tokens: int, head_dim: int, value_dim: int, mask: str, fast: int
) -> None:
    problem = square(tokens, head_dim, value_dim=value_dim, mask=mask)
    for bound in all_bounds():
        if bound.reason_against(problem) is None:
            words = bound.words(problem, fast)
            assert math.isfinite(words)
            assert words >= bound.words(problem, fast + 7) * (1 - 1e-9) >= 0


def test_matmul_constant_is_settled() -> None:
    """COSMA's schedule is 0.03 % above its bound at 10 Mi words (its abstract), and never below Smith's bound."""
    side, fast = 16384, 10 * 2**20
    cosma_bound = 2 * side**3 / math.sqrt(fast) + side**2
    assert smith_words(side * side, side, fast) < cosma_bound < cosma_words(side * side, side, fast)
    assert cosma_words(side * side, side, fast) / cosma_bound == pytest.approx(1.0003, abs=5e-5)


@pytest.mark.parametrize("tile", [1, 2, 5, 30])
def test_cosma_moves_what_its_square_tiles_move(tile: int) -> None:
    """A tile of a x a sums and one column and one row fit where (a + 1)^2 = M + 1; every tile loads 2 a k words."""
    m, n, k = 4 * tile, 3 * tile, 7
    assert cosma_words(m * n, k, (tile + 1) ** 2 - 1) == pytest.approx(12 * (2 * tile * k + tile**2))
    assert smith_words(8 * 8, 2, 10_000) == 0


def test_shapes_are_not_bounds() -> None:
    problem = square(1024, 64)
    for shape in SHAPES:
        assert not hasattr(shape, "words")
        assert shape.growth(problem, 64) > shape.growth(problem, 64 * 64) > 0
    sparse = next(s for s in SHAPES if s.name == "sparse")
    dense = next(s for s in SHAPES if s.name == "Saha-Ye")
    for fast in (512, 64 * 64, 100_000):  # the sparse form recovers the dense one
        assert sparse.growth(problem, fast) == pytest.approx(dense.growth(problem, fast))


def test_linear_attention_needs_no_quadratic_traffic() -> None:
    problem = square(4096, 64)
    large = best_bound(problem, 64 * 64 + 200, direction="forward", mechanism="linear")
    assert (large.active.bound.name, large.words) == ("C_linear", 4 * 4096 * 64)
    small = best_bound(problem, 256, direction="forward", mechanism="linear", algorithm_class=AlgorithmClass.STORED)
    assert small.active.bound.name == "linear state"
    assert small.words == pytest.approx(2 * (2 * 4096 * 64 * 64 / 16 - 2 * 256))
