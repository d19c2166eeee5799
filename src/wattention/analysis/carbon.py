"""Emissions: energy x factor. The factor is the user's, an average of a grid; whatever it touches is an estimate."""

from __future__ import annotations

from wattention.core.quantities import Absent, Reading
from wattention.core.run_spec import CarbonSpec
from wattention.hardware.carbon import NO_FACTOR


def carbon_of(energy: Reading, factor: CarbonSpec | None) -> Reading:
    """Return kg CO2e of an energy in joules (per token, where the energy is), or why there are none.

    The interval is the energy's; the factor's own uncertainty is not known and not in it.
    """
    if factor is None:
        return Absent(NO_FACTOR)
    if isinstance(energy, Absent):
        return energy
    return energy.mapped(
        lambda value: value * factor.kg_per_j,
        unit=energy.unit.replace("J", "kgCO2e", 1),
        origin="estimated",
        source=f"{energy.origin} energy x {factor.source}",
    )
