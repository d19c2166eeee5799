import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wattention.analysis.blocks import fit_blocks, holm


def table(rng, effects, blocks, noise):
    drift = rng.normal(0, 0.5, blocks)
    return {
        name: {b: math.exp(effect + drift[b] + rng.normal(0, noise)) for b in range(blocks)}
        for name, effect in effects.items()
    }


def test_with_complete_blocks_the_ratio_is_the_geometric_mean_of_the_block_ratios():
    rng = np.random.default_rng(0)
    values = table(rng, {"a": 0.0, "b": 0.7, "c": -0.2}, 4, 0.1)
    by_hand = math.exp(np.mean([math.log(values["b"][i] / values["a"][i]) for i in range(4)]))
    assert fit_blocks(values).ratios_to("a")["b"].value == pytest.approx(by_hand)


def test_two_mechanisms_reduce_to_the_paired_t_interval():
    rng = np.random.default_rng(1)
    values = table(rng, {"a": 0.0, "b": 0.1}, 5, 0.05)
    differences = [math.log(values["b"][i] / values["a"][i]) for i in range(5)]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(differences), scale=stats.sem(differences))
    ratio = fit_blocks(values).ratios_to("a")["b"]
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert ratio.p_holm == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)


def test_drift_between_blocks_does_not_widen_a_ratio():
    values = {"a": {0: 1.0, 1: 100.0}, "b": {0: 2.0, 1: 200.0}, "c": {0: 3.0, 1: 300.0}}
    ratio = fit_blocks(values).ratios_to("a")["b"]
    assert (ratio.low, ratio.high) == pytest.approx((2.0, 2.0))
    assert not ratio.tie


def test_one_block_has_no_interval_and_everything_is_a_tie():
    model = fit_blocks({"a": {0: 1.0}, "b": {0: 9.0}})
    ratio = model.ratios_to("a")["b"]
    assert ratio.value == pytest.approx(9.0)
    assert ratio.low is None
    assert ratio.tie
    assert model.mean("b").low is None


def test_a_mechanism_that_failed_in_one_block_is_compared_where_it_ran():
    values = {"a": {0: 1.0, 1: 10.0, 2: 1.1}, "b": {0: 2.0, 1: 20.0, 2: 2.2}, "c": {1: 30.0}}
    ratio = fit_blocks(values).ratios_to("a")["c"]
    assert ratio.value == pytest.approx(3.0)


def by_least_squares(values):
    """The additive model as one dense regression: log ratios to the first mechanism and the noise."""
    labels, blocks = list(values), sorted({b for ours in values.values() for b in ours})
    rows = [(i, blocks.index(b), math.log(y)) for i, label in enumerate(labels) for b, y in values[label].items()]
    design = np.zeros((len(rows), len(labels) + len(blocks)))
    for row, (i, j, _) in enumerate(rows):
        design[row, i] = design[row, len(labels) + j] = 1
    y = np.array([value for _, _, value in rows])
    solution, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    freedom = len(y) - rank
    squares = float(((y - design @ solution) ** 2).sum())
    return solution[: len(labels)] - solution[0], freedom, (squares / freedom) ** 0.5 if freedom else 0.0


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 8))
def test_with_missing_cells_the_fit_is_that_of_dense_least_squares(seed, mechanisms, blocks):
    rng = np.random.default_rng(seed)
    values = {
        f"m{i}": {b: math.exp(rng.normal()) for b in range(blocks) if rng.random() < 0.8} for i in range(mechanisms)
    }
    values["m0"] = {b: math.exp(rng.normal()) for b in range(blocks)}  # a full row connects all others
    values = {label: ours for label, ours in values.items() if ours}
    effects, freedom, noise = by_least_squares(values)
    model = fit_blocks(values)
    assert model.degrees_of_freedom == freedom
    assert model.noise_sd == pytest.approx(noise, abs=1e-9)
    for label, effect in zip(list(values)[1:], effects[1:], strict=True):
        assert math.log(model.ratios_to("m0")[label].value) == pytest.approx(effect, abs=1e-9)


def test_mechanisms_that_no_block_connects_are_never_compared():
    values = {
        "a": {0: 1.0, 1: 1.1}, "b": {0: 2.0, 1: 2.3}, "c": {2: 7.0, 3: 8.0}, "d": {2: 7.0, 3: 9.0},
    }  # fmt: skip
    ratios = fit_blocks(values).ratios_to("a")
    assert ratios["b"].low is not None
    assert (ratios["c"].low, ratios["c"].p_holm, ratios["c"].tie) == (None, None, True)
    assert fit_blocks(values).ratios_to("c")["d"].low is not None


def test_ten_thousand_blocks_are_fitted_without_a_matrix_of_blocks_by_blocks():
    """10,000 blocks squared would take 800 MB; the fit takes some copies of its own data."""
    rng = np.random.default_rng(5)
    y = np.exp(rng.normal(0, 0.02, (8, 10_000)) + rng.normal(0, 0.3, 10_000))
    values = {f"m{i}": dict(enumerate(row.tolist())) for i, row in enumerate(y)}
    del values["m3"][17]
    tracemalloc.start()
    model = fit_blocks(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 8 * 10_000 * 8
    assert model.degrees_of_freedom == 7 * 9_999 - 1
    assert model.noise_sd == pytest.approx(0.02, rel=0.02)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    assert all(a >= p or a == 1.0 for a, p in zip(adjusted, p_values, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert all(adjusted[i] <= adjusted[j] for i, j in pairwise(order))


def test_an_a_a_comparison_is_a_tie_and_a_real_difference_is_found():
    """At two blocks of eight mechanisms, as ``compare`` runs by default, over 400 simulated runs."""
    rng = np.random.default_rng(2)
    names = [f"m{i}" for i in range(8)]
    ties = found = 0
    for _ in range(400):
        values = table(rng, dict.fromkeys(names, 0.0) | {"m7": 0.2}, 2, 0.02)
        ratios = fit_blocks(values).ratios_to("m0")
        ties += all(ratios[f"m{i}"].tie for i in range(1, 7))
        found += not ratios["m7"].tie
    assert ties / 400 >= 0.93
    assert found / 400 >= 0.93


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(1000):
        ratio = fit_blocks(table(rng, {"a": 0.0, "b": 0.3, "c": 0.1}, 3, 0.05)).ratios_to("a")["b"]
        covered += ratio.low <= math.exp(0.3) <= ratio.high
    assert 0.93 <= covered / 1000 <= 0.97
