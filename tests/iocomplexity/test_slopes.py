"""How traffic grows with M, n and d in the two regimes, read off the exact counts on log axes."""

import math

import numpy as np
import pytest

from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.schedules.base import SCHEDULES

N, D = 16384, 128


def words(name, n, d, fast_words):
    schedule = SCHEDULES.load(name)
    problem = attention_problem(tokens=n, head_dim=d)
    return schedule.predict(problem, schedule.plan(problem, fast_words)).words


def slope(points):
    x, y = zip(*points, strict=True)
    return np.polyfit([math.log(one) for one in x], [math.log(one) for one in y], 1)[0]


@pytest.mark.parametrize("name", ["flash2", "one_pass", "two_pass"])
def test_with_a_large_cache_traffic_is_n2_d2_over_m(name):
    assert slope([(m, words(name, N, D, m)) for m in (2 * D * D, 4 * D * D, 8 * D * D)]) == pytest.approx(-1, abs=0.05)
    assert slope([(n, words(name, n, D, 4 * D * D)) for n in (16384, 32768, 65536)]) == pytest.approx(2, abs=0.05)
    assert slope([(d, words(name, N, d, 4 * D * D)) for d in (32, 64, 128)]) == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(("name", "of_m"), [("small_cache", -0.5), ("small_cache_backward", -0.5)])
def test_with_a_small_cache_traffic_is_n2_d_over_root_m(name, of_m):
    assert slope([(D * D // k, words(name, N, D, D * D // k)) for k in (64, 32, 16, 8)]) == pytest.approx(
        of_m, abs=0.05
    )
    assert slope([(n, words(name, n, D, D * D // 16)) for n in (4096, 8192, 16384)]) == pytest.approx(2, abs=0.05)
    assert slope([(d, words(name, N, d, 1024)) for d in (128, 256, 512)]) == pytest.approx(1, abs=0.1)
