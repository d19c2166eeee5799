"""A ratio of energies as a cell: its interval in words, a tie said as one."""

from __future__ import annotations

from wattention.analysis.energy import EnergyRatio
from wattention.core.quantities import Origin, Quantity
from wattention.report.document import Cell
from wattention.report.units import format_interval


def ratio_cell(ratio: EnergyRatio, source: str, *, origin: Origin = "measured") -> Cell:
    """Return ``0.82 [0.80, 0.84]`` or ``1.01 [0.97, 1.05] tie`` with the number behind it."""
    text = format_interval(ratio.value, ratio.low, ratio.high)
    number = Quantity(value=ratio.value, unit="ratio", origin=origin, source=source, low=ratio.low, high=ratio.high)
    return Cell(content=f"{text} tie" if ratio.tie else text, number=number)
