import pytest

from wattention.analysis.crossover import find_crossover

LENGTHS = (256, 512, 1024, 2048, 4096)


def power_law(factor, exponent):
    return {t: factor * t**exponent for t in LENGTHS}


def test_power_laws_cross_where_algebra_says():
    found = find_crossover(power_law(1000.0, 1), power_law(1.0, 2))
    assert found.kind == "from"
    assert found.length_tokens == pytest.approx(1000.0)
    assert found.ratio_at_longest == pytest.approx(1000 / 4096)


def test_always_and_never():
    assert find_crossover(power_law(1, 1), power_law(2, 1)).kind == "always"
    never = find_crossover(power_law(3, 1), power_law(2, 1))
    assert (never.kind, never.length_tokens) == ("never", 4096)
    assert never.ratio_at_longest == pytest.approx(1.5)


def test_equal_costs_are_no_gain():
    assert find_crossover(power_law(1, 2), power_law(1, 2)).kind == "never"


def test_an_early_lead_that_is_lost_again_does_not_count():
    ours = {256: 1.0, 512: 3.0, 1024: 1.0}
    theirs = {256: 2.0, 512: 2.0, 1024: 2.0}
    found = find_crossover(ours, theirs)
    assert found.kind == "from"
    assert 512 < found.length_tokens < 1024


def test_lengths_only_one_of_them_was_measured_at_are_left_out():
    assert find_crossover({256: 1.0}, {256: 2.0, 512: 3.0}).kind == "unknown"


def test_a_length_where_nothing_is_decided_is_no_gain():
    ours, theirs = power_law(0.9, 1), power_law(1, 1)
    assert find_crossover(ours, theirs, undecided=[4096]).kind == "tie"
    later = find_crossover(ours, theirs, undecided=[256, 512])
    assert (later.kind, later.length_tokens) == ("from", pytest.approx(512))


@pytest.mark.parametrize("length", LENGTHS[:-1])
def test_a_crossing_never_lies_outside_the_lengths_measured(length):
    ours, theirs = power_law(0.9, 1), power_law(1, 1)
    found = find_crossover(ours, theirs, undecided=[t for t in LENGTHS if t <= length])
    assert found.length_tokens == length
