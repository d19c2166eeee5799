"""Energy per token is time per token times power: which of the two makes the difference."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.cells import by_block
from wattention.analysis.power import mean_power
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.figures.wording import times
from wattention.report.units import format_value


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where fewer than two mechanisms have a power."""
    cells = by_block(records, "train")
    found: dict[str, tuple[Quantity, Quantity]] = {}
    for summary in comparison.mechanisms:
        speed = summary.quantities["tokens_per_s"]
        power = mean_power(list(cells.get(summary.label, {}).values()))
        if isinstance(speed, Quantity) and isinstance(power, Quantity):
            each = Quantity(value=1 / speed.value, unit="s/token", origin=speed.origin, source=speed.source)
            found[summary.label] = (each, power)
    if len(found) < 2:
        return None
    place = slots(comparison)
    points = tuple(
        Series(
            name=label,
            x=(time.value,),
            y=(power.value,),
            slot=place[label],
            hover=(
                f"{label}: {format_value(time.value, 's/token')} at {format_value(power.value, 'W')} "
                f"= {format_value(time.value * power.value, 'J/token')}",
            ),
        )
        for label, (time, power) in found.items()
    )
    view = View(
        label="",
        x=Axis(title="time per token", unit="s/token", log=True),
        y=Axis(title="mean power while training", unit="W", zero=True),
        series=(*_same_energy(found, comparison.reference), *points),
    )
    return Figure(
        key="power-time",
        title="Power and time",
        caption=_finding(found),
        how=_how(found, comparison.reference),
        views=(view,),
        table=_table(found),
    )


def _same_energy(found: dict[str, tuple[Quantity, Quantity]], reference: str) -> tuple[Series, ...]:
    """The line on which a token costs as many joules as the reference's."""
    if reference not in found:
        return ()
    joules = found[reference][0].value * found[reference][1].value
    powers = [power.value for _, power in found.values()]
    low, high = min(powers) * 0.8, max(powers) * 1.05
    heights = [low + (high - low) * step / 20 for step in range(21)]
    return (
        Series(
            name=f"energy of {reference}",
            x=tuple(joules / height for height in heights),
            y=tuple(heights),
            mark="line",
            quiet=True,
        ),
    )


def _finding(found: dict[str, tuple[Quantity, Quantity]]) -> str:
    times_s, powers = [time.value for time, _ in found.values()], [power.value for _, power in found.values()]
    time, power = max(times_s) / min(times_s), max(powers) / min(powers)
    which = "time" if time > power else "power"
    words = f"Time per token differs by up to {times(time)}, power by up to {times(power)}: "
    words += f"differences in energy are mostly differences in {which}."
    if any(p.origin == "estimated" for _, p in found.values()):
        words += " The power is a model's, driven by how busy the cores were, so this only restates their use."
    return words


def _how(found: dict[str, tuple[Quantity, Quantity]], reference: str) -> str:
    if reference not in found:
        return ""
    return f"On the dotted line a token costs as much energy as with {reference}; below and left of it, less."


def _table(found: dict[str, tuple[Quantity, Quantity]]) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        Column(key="s_per_token", heading="time/token", help="seconds per trained token"),
        Column(key="power_w", heading="power", help="mean power of the energy window"),
    )
    rows = tuple(
        (Cell(content=label), Cell(content=time), Cell(content=power)) for label, (time, power) in found.items()
    )
    return Table(columns=columns, rows=rows)
