"""Carbon factors: numbers with units, regions with sources, and no default."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.hardware.carbon import UNIT, carbon_factor, read_grids

KWH_J = 3.6e6


@pytest.mark.parametrize(
    "text",
    ["400 g/kWh", "400g/kwh", "0.4 kg/kWh", "400 gCO2e/kWh", "0.4 kgCO2/kWh", "0.4 t/MWh", "400 kg/MWh", "4e2 g / kWh"],
)
def test_units_mean_the_same(text):
    factor = carbon_factor(text)
    assert factor.value * KWH_J == pytest.approx(0.4)
    assert (factor.unit, factor.origin) == (UNIT, "estimated")
    assert factor.source == "400 g CO2e/kWh, given by the user"


def test_pounds_and_megajoules():
    assert carbon_factor("882 lb/MWh").value * KWH_J == pytest.approx(0.882 * 0.45359237)
    assert carbon_factor("100 g/MJ").value * KWH_J == pytest.approx(0.36)


@pytest.mark.parametrize("text", ["DE", "de", "DE-2023", "Germany", "germany 2023", "DE_2023"])
def test_a_region_names_its_year_and_source(text):
    factor = carbon_factor(text)
    assert factor.value * KWH_J == pytest.approx(0.381)
    assert factor.source.startswith("381 g CO2e/kWh, Germany 2023; Ember, Yearly Electricity Data")


def test_sources_that_count_differently_have_names_of_their_own():
    assert carbon_factor("GB-2023").value * KWH_J == pytest.approx(0.238)
    official = carbon_factor("GB-DESNZ-2023")
    assert official.value * KWH_J == pytest.approx(0.207074)
    assert "direct emissions" in official.source
    assert carbon_factor("gb-desnz").value * KWH_J == pytest.approx(0.177)  # the latest year


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Germny", r"unknown region of the carbon table\n  got: Germny\n(.|\n)*did you mean Germany"),
        ("XQ", "unknown region of the carbon table"),
        ("DE-1999", r"no such year of this grid\n  got: DE-1999\n  wanted: DE-2021, DE-2022, DE-2023"),
        ("400", "write its unit: 400 g/kWh"),
        ("400 g", "write its unit: 400 g/kWh"),
        ("1.2.3 g/kWh", "the carbon factor cannot be read"),
        ("-3 g/kWh", "above 0 and at most 3 kg/kWh"),
        ("0 g/kWh", "above 0 and at most 3 kg/kWh"),
        ("400 kg/kWh", r"no electricity has this carbon factor(.|\n)*check the unit"),
        ("", "unknown region"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, words):
    with pytest.raises(UserError, match=words):
        carbon_factor(text)


def test_every_figure_is_sourced_unique_and_plausible():
    grids = read_grids()
    assert len({grid.region.casefold() for grid in grids}) == len(grids) >= 30
    for grid in grids:
        assert "(" in grid.source
        assert grid.g_per_kwh
        assert all(2000 < year < 2100 and 10 < value < 1200 for year, value in grid.g_per_kwh.items())


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=12))
def test_any_text_is_a_factor_or_a_user_error(text):
    with contextlib.suppress(UserError):
        assert 0 < carbon_factor(text).value * KWH_J <= 3
