import pkgutil
import tomllib
from pathlib import Path

import pytest

from wattention.iocomplexity.bounds import BOUNDS
from wattention.iocomplexity.schedules.base import SCHEDULES
from wattention.mechanisms.base import MECHANISMS
from wattention.report import renderers

CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}


@pytest.mark.parametrize(
    ("name", "catalog"),
    [
        ("no mechanism imports another", MECHANISMS),
        ("no schedule imports another", SCHEDULES),
        ("no bound imports another", BOUNDS),
    ],
)
def test_every_plugin_is_held_apart_from_its_siblings(name, catalog):
    held = {module.rpartition(".")[2] for module in CONTRACTS[name]["modules"]}
    assert set(catalog.names()) <= held


def test_every_renderer_is_held_apart_from_its_siblings():
    held = {module.rpartition(".")[2] for module in CONTRACTS["no renderer imports another"]["modules"]}
    shared = {"tidy"}  # the rows of csv and parquet alike
    assert {module.name for module in pkgutil.iter_modules(renderers.__path__)} - shared == held
