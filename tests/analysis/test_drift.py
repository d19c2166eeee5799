import numpy as np
import pytest

from wattention.analysis.drift import LEAST_STEPS, STRETCHES, find_drift, flags_of
from wattention.core.records import Phase


def steps(count, *, rise=0.0, noise=0.02, seed=0):
    rng = np.random.default_rng(seed)
    return 0.1 * np.linspace(1, 1 + rise, count) * np.exp(rng.normal(0, noise, count))


@pytest.mark.parametrize("count", [34, 400, 5000])
def test_a_rise_over_the_window_is_flagged_with_its_size(count):
    drift = find_drift(steps(count, rise=0.15))
    assert drift.flagged
    assert drift.change == pytest.approx(0.14, abs=0.03)
    assert find_drift(steps(count, rise=-0.15)).change < -0.1


def test_steady_steps_are_rarely_flagged_however_noisy():
    for noise in (0.02, 0.1, 0.3):
        assert np.mean([find_drift(steps(34, noise=noise, seed=seed)).flagged for seed in range(300)]) <= 0.03


def test_a_small_drift_and_one_slow_step_are_no_drift():
    assert not find_drift(steps(1000, rise=0.03)).flagged
    one = steps(50)
    one[-1] *= 20
    assert not find_drift(one).flagged


def test_too_few_steps_show_no_trend():
    assert find_drift(np.linspace(1, 2, LEAST_STEPS - 1)) is None
    assert find_drift(np.linspace(1, 2, LEAST_STEPS)).flagged
    assert find_drift([1.0] * (STRETCHES + 1)).change == 0.0


def test_a_phase_carries_the_flags_of_its_meters_and_of_its_steps():
    company = {"kind": "company", "message": "others were busy"}
    phase = Phase(samples={"step_s": tuple(steps(40, rise=0.2))}, flags=(company,))
    first, second = flags_of(phase)
    assert first == company
    assert second["kind"] == "drift"
    assert "up by" in second["message"]
    assert "limit 5%" in second["message"]
    assert flags_of(Phase(samples={"step_s": tuple(steps(40))})) == ()
