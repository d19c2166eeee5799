"""Devices of known joules a second, a FLOP and a byte: the regression finds them, or says that it cannot."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.analysis.joules import Load, explain_joules

POWER, PER_FLOP, PER_BYTE = 60.0, 1.2e-12, 90e-12
TRUTH = {"time": POWER, "flop": PER_FLOP, "bytes": PER_BYTE}
MECHANISMS = {  # FLOP/s and byte/s it reaches, relative FLOPs and bytes
    "baseline": (4e13, 1.2e12, 1.0, 9.0),
    "flash": (1.6e14, 4e11, 1.0, 1.0),
    "linear": (5e13, 9e11, 0.2, 1.5),
    "window": (9e13, 6e11, 0.4, 0.8),
    "latent": (1.4e14, 5e11, 1.3, 1.2),
}


def device(*, noise=0.01, blocks=5, seed=0, power=POWER, per_flop=PER_FLOP, per_byte=PER_BYTE, mechanisms=MECHANISMS):
    """Windows of a device that obeys the model, with relative noise on its counter."""
    random = np.random.default_rng(seed)
    loads = []
    for block in range(blocks):
        for tokens in (256, 512, 1024, 2048):
            for name, (rate, bandwidth, flops, moved) in mechanisms.items():
                flop, byte = flops * 1e6 * tokens**2, moved * 1e4 * tokens**1.8
                time = max(flop / rate, byte / bandwidth)
                joules = power * time + per_flop * flop + per_byte * byte
                loads.append(
                    Load(
                        mechanism=name,
                        group=f"T={tokens}",
                        block=block,
                        energy_j=joules * float(np.exp(noise * random.standard_normal())),
                        amounts={"time": time, "flop": flop, "bytes": byte},
                    )
                )
    return loads


def test_without_noise_the_coefficients_are_those_of_the_device():
    model = explain_joules(device(noise=0))
    for name, value in TRUTH.items():
        assert model.coefficients[name].value == pytest.approx(value, rel=1e-6)
    assert model.explained.value == pytest.approx(1.0, abs=1e-6) == sum(share.value for share in model.shares.values())
    assert model.fit_error < 1e-7
    assert max(model.errors.values()) < 1e-6
    assert model.identified


def test_the_intervals_cover_the_truth_about_as_often_as_they_say():
    covered = total = 0
    for seed in range(60):
        model = explain_joules(device(seed=seed, noise=0.03, blocks=4))
        for name, value in TRUTH.items():
            estimate = model.coefficients[name]
            covered += estimate.low <= value <= estimate.high
            total += 1
    assert covered / total >= 0.88


def test_what_does_not_cost_anything_gets_nothing():
    model = explain_joules(device(per_byte=0.0, noise=0.0))
    assert model.coefficients["bytes"].value == pytest.approx(0, abs=1e-15)
    assert model.coefficients["flop"].value == pytest.approx(PER_FLOP, rel=1e-6)


def test_shares_name_what_makes_the_difference():
    """A device that only spends on bytes: bytes explain the most, and no share is negative."""
    model = explain_joules(device(power=1e-6, per_flop=0.0, noise=0.0))
    shares = {name: share.value for name, share in model.shares.items()}
    assert max(shares, key=shares.get) == "bytes"
    assert min(shares.values()) >= 0
    assert sum(shares.values()) == pytest.approx(1, abs=1e-6)


def test_predictors_that_go_together_are_reported_and_nothing_is_claimed():
    """Every mechanism at one rate: seconds are FLOPs, and no regression can tell them apart."""
    same = {name: (1e14, 1e15, flops, moved) for name, (_, _, flops, moved) in MECHANISMS.items()}
    model = explain_joules(device(mechanisms=same, noise=0.01))
    assert not model.identified
    assert model.collinearity.condition > 1e3
    assert ("flop", "time", pytest.approx(1.0)) in model.collinearity.together
    assert model.shares["time"].value == pytest.approx(model.shares["flop"].value, rel=1e-3)
    # what they cost together is known all the same
    joules = model.coefficients["time"].value / 1e14 + model.coefficients["flop"].value
    assert joules == pytest.approx(POWER / 1e14 + PER_FLOP, rel=0.05)


def test_a_mechanism_that_obeys_another_law_shows_as_an_error_from_the_others():
    loads = device(noise=0.005)
    twisted = [
        Load(mechanism=x.mechanism, group=x.group, block=x.block, amounts=x.amounts,
             energy_j=x.energy_j * (1.5 if x.mechanism == "latent" else 1.0))
        for x in loads
    ]  # fmt: skip
    errors = explain_joules(twisted).errors
    assert max(errors, key=errors.get) == "latent"
    assert errors["latent"] == pytest.approx(1 / 3, abs=0.05)


def test_one_block_has_no_interval_and_two_have_a_wide_one():
    alone = explain_joules(device(blocks=1, noise=0.02)).coefficients["time"]
    assert alone.low is None
    assert alone.high is None
    two, five = (explain_joules(device(blocks=b, noise=0.02)).coefficients["time"] for b in (2, 5))
    assert two.high - two.low > five.high - five.low


def test_too_few_windows_are_refused_in_words():
    few = [load for load in device(blocks=2) if load.mechanism in ("flash", "linear") and load.group == "T=256"]
    assert "3 coefficients need more than 3 different windows" in explain_joules(few)
    only = [load for load in device() if load.mechanism == "flash"]
    assert "there are 4 of 1" in explain_joules(only)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_unit_of_energy_and_the_order_of_windows_do_not_matter(seed, factor):
    loads = device(blocks=2, seed=seed, noise=0.05)
    shuffled = [loads[i] for i in np.random.default_rng(seed).permutation(len(loads))]
    scaled = [
        Load(mechanism=x.mechanism, group=x.group, block=x.block, amounts=x.amounts, energy_j=x.energy_j * factor)
        for x in shuffled
    ]
    one, other = explain_joules(loads), explain_joules(scaled)
    for name in TRUTH:
        assert other.coefficients[name].value == pytest.approx(one.coefficients[name].value * factor, rel=1e-6)
        assert other.shares[name].value == pytest.approx(one.shares[name].value, abs=1e-9)
    assert math.isclose(one.collinearity.condition, other.collinearity.condition, rel_tol=1e-6)
