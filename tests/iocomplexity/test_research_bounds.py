"""Bounds with ceilings from branch and bound: lemmas attacked, ceilings proved again, no count below a bound."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.iocomplexity.bounds import _ceilings, _certificates
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.planning.best_bound import all_bounds
from wattention.iocomplexity.planning.planner import all_schedules, class_of
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import FastMemoryTooSmallError

NAMES = ("A'", "A*", "D*", "E*")
N, D = 16384, 128


@cache
def bound(name: str) -> Bound:
    return next(b for b in all_bounds() if b.name == name)


# --- no count of any schedule is below a bound of its class -----------------------------------------------------------


@given(
    tokens=st.integers(2, 48),
    keys=st.integers(2, 48),
    key_dim=st.integers(1, 16),
    value_dim=st.integers(1, 16),
    fast_words=st.integers(4, 900),
    mask=st.sampled_from(["dense", "dense", "window:5", "bigbird:block=2,global=1,window=1,random=1"]),
    widths=st.sampled_from([Widths(), Widths(statistics=0), Widths(inputs=1, accumulators=2, scratch=1)]),
)
@settings(deadline=None, max_examples=30)
def test_no_executed_count_is_below_a_bound(
    *, tokens: int, keys: int, key_dim: int, value_dim: int, fast_words: int, mask: str, widths: Widths
) -> None:
    keys = keys if mask == "dense" else tokens
    problem = attention_problem(
        tokens=tokens, key_tokens=keys, head_dim=key_dim, value_dim=value_dim, mask=mask, widths=widths
    )
    for schedule in all_schedules():
        if schedule.form != "attention" or schedule.refuses(problem) is not None:
            continue
        try:
            counted = execute(schedule, problem, fast_words, numbers=False).count.words
        except FastMemoryTooSmallError:
            continue
        for name in NAMES:
            theorem = bound(name)
            if theorem.direction == schedule.direction and theorem.algorithm_class.covers(class_of(schedule)):
                assert theorem.words(problem, fast_words) <= counted, (name, schedule.name)


@pytest.mark.parametrize(("tokens", "head_dim"), [(4096, 16), (4096, 40), (4096, 128), (16384, 128)])
def test_no_large_count_is_below_a_bound(head_dim: int, tokens: int) -> None:
    problem = attention_problem(tokens=tokens, head_dim=head_dim)
    for power in np.arange(-6.0, 6.01, 0.25):
        fast_words = max(8, int(2.0**power * head_dim**2))
        for schedule in all_schedules():
            if schedule.form != "attention" or schedule.refuses(problem) is not None:
                continue
            try:
                words = schedule.predict(problem, schedule.plan(problem, fast_words)).words
            except FastMemoryTooSmallError:
                continue
            for name in NAMES:
                theorem = bound(name)
                if theorem.direction == schedule.direction and theorem.algorithm_class.covers(class_of(schedule)):
                    assert theorem.words(problem, fast_words) <= words, (name, schedule.name, fast_words)


@pytest.mark.parametrize(("fast_words", "optimum"), [(3, 16), (4, 10), (5, 9), (6, 8)])
def test_known_optimum_of_two_tokens(fast_words: int, optimum: int) -> None:
    assert bound("A*").words(attention_problem(tokens=2, head_dim=1), fast_words) <= optimum


# --- the bounds as functions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_more_memory_and_fewer_features_need_no_more_words(name: str) -> None:
    def words(per_square: float, head_dim: int = D) -> float:
        problem = attention_problem(tokens=N, head_dim=head_dim)
        return bound(name).words(problem, int(per_square * D * D))

    by_memory = [words(2.0**p) for p in np.arange(-6.0, 6.01, 0.5)]
    assert all(later <= earlier for earlier, later in pairwise(by_memory))
    by_width = [words(1.0, d) for d in (32, 64, 96, 128, 160)]
    assert by_width == sorted(by_width)


def test_the_new_bounds_are_the_largest_where_the_page_says_so() -> None:
    problem = attention_problem(tokens=N, head_dim=D)

    def largest(direction: str, per_square: float, algorithm_class: AlgorithmClass) -> str:
        fast_words = int(per_square * D * D)
        covering = [b for b in all_bounds() if b.direction == direction and b.mechanism == "softmax"]
        holding = [b for b in covering if b.reason_against(problem) is None]
        allowed = [b for b in holding if b.algorithm_class.covers(algorithm_class)]
        return max(allowed, key=lambda b: b.words(problem, fast_words)).name

    assert largest("forward", 1.0, AlgorithmClass.ONCE) == "A*"
    assert largest("forward", 1.0, AlgorithmClass.RECOMPUTE) == "A*"
    assert largest("backward", 1.0, AlgorithmClass.RECOMPUTE) == "E*"
    assert largest("forward", 10.0, AlgorithmClass.ONCE) == "A'"
    assert largest("backward", 10.0, AlgorithmClass.ONCE) == "D*"


# --- lemmas, attacked: a segment drawn at random never does more than its ceiling -------------------------------------


def edge(x: np.ndarray, y: np.ndarray, inside: np.ndarray, carried: np.ndarray) -> np.ndarray:
    """Most multiply-adds of one product over carried pairs, beside ``inside`` made ones; NaN where those do not fit."""
    with np.errstate(invalid="ignore"):
        return np.minimum(carried, np.sqrt(x * y - inside) ** 2)


def test_exclusive_backward_segments_stay_below_the_ceiling() -> None:
    rng = np.random.default_rng(0)
    size = 400_000
    p, q = rng.exponential(1, (2, size)) * (rng.random((2, size)) < 0.7)
    more = rng.exponential(1, (7, size)) * (rng.random((7, size)) < 0.5)
    rows, keys = p + more[0], q + more[1]
    a, b, g = rows + more[2], keys + more[3], p + more[4]
    to_q, to_k, to_v = rng.exponential(1, (3, size))
    made_v = rng.random(size) ** 0.3 * np.minimum(rows, g) * np.minimum(keys, to_v)
    made_q, made_k = np.minimum(p, to_q) * q, np.minimum(q, to_k) * p
    carried = rng.exponential(1, size) * (a + b + g + q + to_q + to_k + to_v) / 4
    words = a + b + g + q + to_q + to_k + to_v + carried
    inside = made_v + made_q + made_k
    work = inside + edge(g, to_v, made_v, carried) + edge(b, to_q, made_q, carried) + edge(a, to_k, made_k, carried)
    for scaled in (1.0, 4.0, 6.0, 9.0, 14.0, 40.0):
        # a segment of any size is one of K words after shrinking rows by t, pairs by t^2, or all words alike
        shrink = scaled / words
        resized = inside * shrink**2 + (
            edge(g * shrink, to_v * shrink, made_v * shrink**2, carried * shrink)
            + edge(b * shrink, to_q * shrink, made_q * shrink**2, carried * shrink)
            + edge(a * shrink, to_k * shrink, made_k * shrink**2, carried * shrink)
        )
        assert np.nanmax(resized) <= _ceilings.exclusive_backward(1)(scaled)
    assert np.nanmax(work / words**1.5) < 2


def test_spanning_forward_segments_stay_below_the_ceiling() -> None:
    rng = np.random.default_rng(1)
    size = 300_000
    for c in _ceilings.SPANNING_FORWARD:
        limit = 1.0 + c.length
        start, charged, left, partial, made = rng.dirichlet(np.full(5, 0.5), size).T * rng.random(size) * 1.5
        start, left = np.minimum(start, 1), np.minimum(left, 1)
        partial = np.minimum(partial, 1 - left)
        q = np.sqrt(made + left) * (1 + rng.exponential(0.3, size))
        free = limit - start - charged - 2 * c.x * q
        out = rng.random(size) * np.maximum(free, 0) / c.x
        arrives, leaves = np.maximum(out - (1 - start) / c.x, 0), np.maximum(out - (1 - left - partial) / c.x, 0)
        v = free / c.x - out - c.theta * arrives - (1 - c.theta) * leaves
        area = q * q - made - left
        first = 2 - c.last
        scores = (
            first * left
            + np.minimum(charged, area)
            + first * np.minimum(start + partial, np.maximum(area - charged, 0))
        )
        sums = np.maximum(v, 0) * out
        inside = np.minimum(made, sums)
        used = np.minimum(start + left, sums - inside)
        work = scores + 2 * inside + c.last * used + np.minimum(charged, sums - inside - used)
        valid = (free >= 0) & (v >= 0)
        assert valid.any()
        assert work[valid].max() <= c.ceiling


def test_spanning_backward_segments_stay_below_the_ceiling() -> None:
    rng = np.random.default_rng(2)
    size = 300_000
    for c in _ceilings.SPANNING_BACKWARD:
        limit = 1.0 + c.length
        first = 3 - 2 * c.last
        start, charged, left, made, carried, p_made = (
            rng.dirichlet(np.full(6, 0.4), size).T * rng.random(size) * np.array([1, 2, 1, 1, 2, 1])[:, None]
        )
        start, left = np.minimum(start, 1), np.minimum(left, 1)
        rectangle = np.maximum(np.maximum(p_made, made + left - carried), 0)
        g, v = (np.sqrt(made + left) * np.exp(rng.normal(0, 0.3, size)) for _ in range(2))
        v = np.maximum(v, (made + left) / np.maximum(g, 1e-9))
        a, b = np.sqrt(rectangle), np.sqrt(rectangle)
        a, b = a + rng.exponential(0.2, size) * (rng.random(size) < 0.5), b + rng.exponential(0.2, size)
        free = limit - start - charged - carried - c.x * (g + v + a + b)
        sums = rng.dirichlet(np.full(3, 0.5), size).T * np.maximum(free, 0) / c.x
        # accumulators beyond what fits beside the pairs at the start are charged twice
        sums /= np.maximum(1, (2 * sums.sum(axis=0) - (1 - start) / c.x) / np.maximum(np.maximum(free, 0) / c.x, 1e-9))
        to_v, to_q, to_k = sums
        area = g * v - made - left
        paying = np.minimum(charged, area)
        work = first * left + paying + first * np.minimum(start + 1 - left, np.maximum(area - paying, 0))
        inside = np.minimum(p_made, g * to_v)
        work += inside + np.minimum(carried, g * to_v - inside)
        for one, other in ((b, to_q), (a, to_k)):
            uses = one * other
            inside = np.minimum(made, uses)
            kept = np.minimum(start + left, uses - inside)
            work += 1.5 * inside + c.last * kept + np.minimum(charged, uses - inside - kept)
        assert (free >= 0).any()
        assert work[free >= 0].max() <= c.ceiling


# --- ceilings, proved again -------------------------------------------------------------------------------------------


def test_cheap_ceilings_are_proved_again() -> None:
    at, value = next(e for e in _ceilings.EXCLUSIVE_BACKWARD if e[0] == 3.0)
    assert _certificates.prove_exclusive_backward(at, value, most_boxes=700_000) > 0
    at, value = next(e for e in _ceilings.EXCLUSIVE_BACKWARD if e[0] == 5.0)
    assert _certificates.prove_exclusive_backward(at, value, most_boxes=500_000) > 0


def test_a_ceiling_that_is_too_low_is_not_proved() -> None:
    assert _certificates.prove_exclusive_backward(3.0, 0.99, most_boxes=100_000) < 0
    assert _certificates.prove_spanning_forward(1.0, 1.9, 1.47, 0.62, 0.9, most_boxes=50_000) < 0
    assert _certificates.prove_spanning_backward(1.0, 2.5, 1.32, 1.0, most_boxes=50_000) < 0


def test_the_table_grows_with_words_between_its_entries() -> None:
    values = [_ceilings.exclusive_backward(4)(float(k)) for k in np.geomspace(1, 4000, 200)]
    assert values == sorted(values)


@pytest.mark.parametrize("head_dim", [1, 7, 64])
def test_the_nearest_proved_ceilings_are_taken_between_and_beyond_entries(head_dim: int) -> None:
    most = _ceilings.exclusive_backward(head_dim)
    table = _ceilings.EXCLUSIVE_BACKWARD
    for scaled in [*np.geomspace(0.01, 1e6, 300), *(at for at, _ in table)]:
        grown = [value * max((scaled / at) ** 1.5, (scaled / at) ** 2) for at, value in table if at <= scaled]
        shrunk = [value * (scaled / at) ** 1.5 for at, value in table if at >= scaled]
        ceiling = head_dim**3 * min(grown + shrunk)
        assert ceiling * (1 + 1e-9) < most(scaled * head_dim**2) < ceiling * (1 + 2e-6)
