import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattention.core.quantities import Absent, Quantity, counted, measured, predicted
from wattention.report.units import format_interval, format_reading, format_value


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.01234, "s", "12.3 ms"),
        (1.0, "s", "1.00 s"),
        (125.0, "s", "125 s"),
        (2.5e-7, "s", "250 ns"),
        (3 * 2**20, "byte", "3.00 MiB"),
        (0, "byte", "0 B"),
        (512.0, "byte/token", "512 B/token"),
        (12345.0, "token/s", "12.3 ktoken/s"),
        (999.6, "token/s", "1.00 ktoken/s"),
        (2.5e6, "flop/token", "2.50 Mflop/token"),
        (0.0015, "J/token", "1.50 mJ/token"),
        (2.34567, "bit/byte", "2.346"),
        (2.0, "ratio", "2.00x"),
    ],
)
def test_values_print_with_the_prefix_a_person_would_choose(value, unit, text):
    assert format_value(value, unit) == text


def test_every_origin_shows_and_an_absent_number_is_a_dash():
    assert format_reading(measured(2.0, "s", "clock")) == "2.00 s"
    assert format_reading(counted(2.0, "s", "program")) == "#2.00 s"
    assert format_reading(predicted(2.0, "s", "formula")) == "=2.00 s"
    assert format_reading(Quantity(value=2.0, unit="J", origin="estimated", source="model")) == "~2.00 J"
    assert format_reading(Absent("no meter")) == "-"


def test_an_interval_is_half_its_width_in_per_cent():
    reading = Quantity(value=100.0, unit="s", origin="measured", source="clock", low=95.0, high=105.0)
    assert format_reading(reading, interval=True) == "100 s ±5.0%"


def test_a_bare_number_has_its_interval_in_brackets():
    assert format_interval(0.824, 0.801, 0.84) == "0.82 [0.80, 0.84]"
    assert format_interval(0.824, 0.801, 0.84, decimals=3) == "0.824 [0.801, 0.840]"
    assert format_interval(0.824, None, None) == "0.82"


@given(st.floats(1e-8, 1e15))
def test_no_exponent_and_never_four_digits_before_the_prefix(value):
    number = format_value(value, "s").split()[0]
    assert "e" not in number
    assert len(number.split(".")[0]) <= 3
