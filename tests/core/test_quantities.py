import math

import pytest

from wattention.core.quantities import ORIGINS, Absent, Quantity, measured, reading_from_json


def test_a_mapped_quantity_takes_its_interval_along_and_keeps_its_origin():
    joules = Quantity(value=6.0, unit="J", origin="measured", source="counter", low=4.0, high=8.0)
    each = joules.mapped(lambda value: value / 2, unit="J/token", source="half of it")
    assert each == Quantity(value=3.0, unit="J/token", origin="measured", source="half of it", low=2.0, high=4.0)
    bare = measured(6.0, "J", "counter").mapped(lambda value: 2 * value, unit="J", source="twice", origin="estimated")
    assert (bare.value, bare.low, bare.high, bare.origin) == (12.0, None, None, "estimated")


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_quantity_survives_json_with_origin_and_interval(origin):
    quantity = Quantity(value=1.5, unit="s", origin=origin, source="here", low=1.0, high=2.0)
    assert reading_from_json(quantity.to_json()) == quantity


def test_an_absent_reading_survives_json_with_its_reason():
    assert reading_from_json(Absent("no counter").to_json()) == Absent("no counter")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_could_not_be_had_is_never_infinity_or_nan(value):
    with pytest.raises(AssertionError, match="not a finite number"):
        measured(value, "J", "a counter that overflowed")


def test_an_unknown_interval_is_left_out_of_json():
    assert "low" not in measured(1.0, "s", "clock").to_json()
