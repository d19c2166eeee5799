"""Variance components: on simulated designs of known truth, and from records."""

import numpy as np
import pytest

from wattention.analysis.recall import wilson_interval
from wattention.analysis.seeds import variance_components


def simulate(draw, seeds, reruns, over_seeds, over_reruns):
    return 10 + over_seeds * draw.normal(size=(seeds, 1)) + over_reruns * draw.normal(size=(seeds, reruns))


def test_components_of_a_design_small_enough_to_do_by_hand():
    found = variance_components([[1.0, 3.0], [5.0, 7.0]])
    assert found.mean == 4.0
    # MSB = 2 (2 - 4)^2 + 2 (6 - 4)^2 = 16 on 1, MSW = (1 + 1 + 1 + 1) / 2 = 2
    assert found.within[0] == pytest.approx(2**0.5)
    assert found.between[0] == pytest.approx(((16 - 2) / 2) ** 0.5)


def test_reruns_that_repeat_have_no_spread_and_all_of_it_is_the_seeds():
    found = variance_components([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    assert found.within == (0.0, 0.0, 0.0)
    assert found.between[0] == pytest.approx(1.0)
    assert found.between[1] < 1.0 < found.between[2]


def test_seeds_that_do_not_matter_have_no_spread_rather_than_a_negative_variance():
    found = variance_components([[1.0, 3.0], [1.0, 3.0], [3.0, 1.0]])
    assert found.between[0] == 0.0
    assert found.within[0] > 1


@pytest.mark.parametrize(("over_seeds", "over_reruns"), [(1.0, 0.3), (0.3, 1.0)])
def test_the_components_and_their_intervals_find_the_truth(over_seeds, over_reruns):
    draw = np.random.default_rng(5)
    found = [variance_components(simulate(draw, 6, 4, over_seeds, over_reruns).tolist()) for _ in range(1000)]
    within = np.mean([c.within[0] ** 2 for c in found])
    assert within**0.5 == pytest.approx(over_reruns, rel=0.05)
    if over_seeds > over_reruns:  # where truncation at zero is rare, the estimate is unbiased
        assert np.mean([c.between[0] ** 2 for c in found]) ** 0.5 == pytest.approx(over_seeds, rel=0.05)
    for part, truth in (("within", over_reruns), ("between", over_seeds)):
        covered = np.mean([getattr(c, part)[1] <= truth <= getattr(c, part)[2] for c in found])
        assert covered >= 0.93, part


def test_wilsons_interval_at_the_ends_and_in_the_middle():
    low, high = wilson_interval(0, 100)
    assert low == pytest.approx(0, abs=1e-12)
    assert high == pytest.approx(0.0370, abs=1e-4)
    assert wilson_interval(100, 100) == pytest.approx((1 - high, 1.0))
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
