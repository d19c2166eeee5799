"""Energies as users write them: 5kWh, 200 Wh, 3MJ."""

from __future__ import annotations

import re

from wattention.core.errors import UserError

_PREFIX = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNIT_J = {"J": 1.0, "Wh": 3600.0}
_ENERGY = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([mkMGT]?)(J|Wh)")


def parse_energy(text: str) -> float:
    """Joules of an energy such as ``5kWh``, ``200Wh`` or ``3MJ``.

    Raises:
        UserError: no positive number with such a unit.
    """
    match = _ENERGY.fullmatch(text.strip())
    joules = float(match[1]) * _PREFIX[match[2]] * _UNIT_J[match[3]] if match else 0.0
    if joules <= 0:
        raise UserError("not an energy", got=text, wanted="a positive number with J or Wh, e.g. 5kWh, 200Wh, 3MJ")
    return joules
