"""How much carbon dioxide a joule stands for: a factor with its region, year and source, always given by the user.

Emissions = energy x factor. The factor is the average of a grid over a year, or the user's own figure; a measurement
of energy says nothing about it, so whatever is computed with it is an estimate. There is no default country: a factor
nobody chose would be a silent constant. The table is ``grid_intensity.toml``, each figure with its source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from wattention.core.errors import UserError, unknown_name
from wattention.core.quantities import Quantity

UNIT = "kgCO2e/J"
NO_FACTOR = "no factor given: --carbon"
"""Why there is no carbon where nobody named a factor."""

_KG = {"g": 1e-3, "kg": 1.0, "t": 1e3, "lb": 0.45359237}
_JOULES = {"wh": 3.6e3, "kwh": 3.6e6, "mwh": 3.6e9, "j": 1.0, "mj": 1e6}
_FACTOR = re.compile(r"([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*(kg|g|t|lb)\s*(?:co2(?:e|eq)?)?\s*/\s*(kwh|mwh|wh|mj|j)", re.I)
_REGION = re.compile(r"(.+?)[-_ :]((?:19|20)[0-9]{2})")
_MOST_KG_PER_KWH = 3.0
"""Lignite, the dirtiest fuel of a grid, emits about 1.2 kg/kWh: above this a unit was mistaken."""
_WANTED = "a number with its unit, e.g. '400 g/kWh', or a region of the table, e.g. DE or DE-2023"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The average intensity of one region's electricity by year, in g CO2e per kWh, and where it was read."""

    region: str
    name: str
    g_per_kwh: dict[int, float]
    source: str


def carbon_factor(text: str) -> Quantity:
    """Return the factor that a user named, in kg CO2e per joule.

    Args:
        text: a number with its unit (``400 g/kWh``, ``0.4 kgCO2e/kWh``), or a region of the table by code or name, with
            or without a year (``DE``, ``DE-2023``, ``Germany 2022``); without one, its latest year.

    Errors: UserError for an unknown region (with near matches) or year, a missing unit, and a number that no grid has.
    """
    asked = text.strip()
    given = _FACTOR.fullmatch(asked)
    if given is not None:
        return _given(asked, *given.groups())
    if re.match(r"[-+.0-9]", asked):
        raise UserError("the carbon factor cannot be read", got=text, wanted=_WANTED, do="write its unit: 400 g/kWh")
    name, year = asked, None
    dated = _REGION.fullmatch(asked)
    if dated is not None:
        name, year = dated.group(1), int(dated.group(2))
    grid = _find(name)
    if year is not None and year not in grid.g_per_kwh:
        years = ", ".join(f"{grid.region}-{known}" for known in grid.g_per_kwh)
        raise UserError("the table has no such year of this grid", got=asked, wanted=years)
    chosen = max(grid.g_per_kwh) if year is None else year
    value = grid.g_per_kwh[chosen]
    return _quantity(value * 1e-3 / 3.6e6, f"{value:g} g CO2e/kWh, {grid.name} {chosen}; {grid.source}")


def _given(asked: str, number: str, mass: str, energy: str) -> Quantity:
    try:
        value = float(number) * _KG[mass.lower()] / _JOULES[energy.lower()]
    except ValueError:
        raise UserError("the carbon factor cannot be read", got=asked, wanted=_WANTED) from None
    if not 0 < value * 3.6e6 <= _MOST_KG_PER_KWH:
        wanted = f"above 0 and at most {_MOST_KG_PER_KWH:g} kg/kWh"
        raise UserError("no electricity has this carbon factor", got=asked, wanted=wanted, do="check the unit")
    return _quantity(value, f"{value * 3.6e9:.4g} g CO2e/kWh, given by the user")


def _quantity(kg_per_j: float, source: str) -> Quantity:
    return Quantity(value=kg_per_j, unit=UNIT, origin="estimated", source=source)


def _find(name: str) -> Grid:
    wanted = name.strip().casefold()
    grids = read_grids()
    for grid in grids:
        if wanted in (grid.region.casefold(), grid.name.casefold()):
            return grid
    known = [grid.region for grid in grids]
    error = unknown_name("region of the carbon table", name, [*known, *(grid.name for grid in grids)])
    raise UserError(error.what, got=name, wanted=f"{', '.join(known)}, or a number: '400 g/kWh'", do=error.do)


@cache
def read_grids() -> tuple[Grid, ...]:
    """Read the table ``grid_intensity.toml``, sources in its order, regions sorted within each."""
    import tomllib

    text = files("wattention.hardware").joinpath("grid_intensity.toml").read_text(encoding="utf-8")
    found: list[Grid] = []
    for source in tomllib.loads(text)["sources"]:
        words = f"{source['title']} ({source['checked']})"
        for region, fields in source["regions"].items():
            years = {int(year): float(value) for year, value in fields.items() if year != "name"}
            found.append(Grid(region=region, name=fields["name"], g_per_kwh=years, source=words))
    return tuple(found)
