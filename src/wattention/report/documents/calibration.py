"""A calibrated profile as a document: levels, rates, launches, and what could not be measured."""

from __future__ import annotations

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.hardware.profile import HardwareProfile, Number
from wattention.report.document import Cell, Column, Document, Section, Table

_LEVELS = (
    Column(key="level", heading="level", help="name of the memory level", numeric=False),
    Column(key="capacity", heading="capacity", help="what one holder of the level has"),
    Column(key="holders", heading="holders", help="how many of them the machine has", numeric=False),
    Column(key="bandwidth", heading="bandwidth", help="bytes read and written a second by all cores"),
    Column(key="energy", heading="energy", help="joules of a byte"),
)
_RATES = (
    Column(key="what", heading="what", help="what was measured", numeric=False),
    Column(key="value", heading="value", help="the measurement"),
)


def calibration_document(profile: HardwareProfile, *, file: str) -> Document:
    """Arrange what a calibration found."""
    levels = tuple(
        (
            Cell(content=level.name),
            Cell(content=_measured(level.capacity, "byte")),
            Cell(content=f"{level.count.value:.0f}" if level.count else "1"),
            Cell(content=_measured(level.bandwidth, "byte/s")),
            Cell(content=_measured(level.energy, "J/byte")),
        )
        for level in profile.levels
    )
    rates: list[tuple[str, Reading]] = [
        (f"fastest product, {name}", _measured(rate, "flop/s")) for name, rate in profile.peak.items()
    ]
    rates.append(("one launch", _measured(profile.launch_overhead, "s")))
    rates.append(("idle power", _measured(profile.idle_power, "W")))
    rates += [(f"one operation, {name}", _measured(cost, "J/flop")) for name, cost in profile.flop_energy.items()]
    points = sum(len(one.points) for one in profile.timings)
    return Document(
        title=profile.title,
        answer=f"written: {file}; {len(profile.timings)} operators timed at {points} sizes",
        sections=(
            Section(title="Memory", table=Table(columns=_LEVELS, rows=levels)),
            Section(
                title="Rates",
                table=Table(columns=_RATES, rows=tuple((Cell(content=name), Cell(content=one)) for name, one in rates)),
                notes=tuple(f"{key}: {value}" for key, value in profile.conditions.items()),
            ),
        ),
    )


def _measured(number: Number | None, unit: str) -> Reading:
    if number is None:
        return Absent("not measured")
    return Quantity(
        value=number.value, unit=unit, origin="measured", source=number.source, low=number.low, high=number.high
    )
