"""Energy per token against held-out loss, with the mechanisms that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.pareto import pareto_front
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import format_value
from wattention.report.wording import list_names

_ENERGY, _LOSS = "energy_per_token_j", "heldout_bits_per_byte"


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where fewer than two mechanisms have both numbers."""
    del records
    pairs: dict[str, tuple[Quantity, Quantity]] = {}
    for summary in comparison.mechanisms:
        energy, loss = summary.quantities[_ENERGY], summary.quantities[_LOSS]
        if summary.status == "ok" and isinstance(energy, Quantity) and isinstance(loss, Quantity):
            pairs[summary.label] = (energy, loss)
    if len(pairs) < 2:
        return None
    front = pareto_front({label: (loss.value, energy.value) for label, (energy, loss) in pairs.items()})
    estimated = any(energy.origin == "estimated" for energy, _ in pairs.values())
    place = slots(comparison)
    line = Series(
        name="front",
        x=tuple(pairs[label][1].value for label in front),
        y=tuple(pairs[label][0].value for label in front),
        mark="line",
        quiet=True,
    )
    points = tuple(
        _point(label, energy, loss, place[label], with_range=not estimated) for label, (energy, loss) in pairs.items()
    )
    view = View(
        label="",
        x=Axis(title="held-out loss, bits/byte: better to the left", unit="bit/byte"),
        y=Axis(title="energy per trained token: better below", unit="J/token", log=True),
        series=(line, *points),
    )
    return Figure(
        key="energy-quality",
        title="Energy against held-out loss",
        caption=_finding(comparison, pairs, front),
        how=_how(estimated),
        views=(view,),
        table=_table(pairs, front),
    )


def _point(label: str, energy: Quantity, loss: Quantity, slot: int, *, with_range: bool) -> Series:
    ranged = with_range and energy.low is not None and energy.high is not None
    words = f"{label}: {format_value(energy.value, energy.unit)}, {format_value(loss.value, loss.unit)} bits/byte"
    return Series(
        name=label,
        x=(loss.value,),
        y=(energy.value,),
        low=(energy.low,) if ranged and energy.low is not None else (),
        high=(energy.high,) if ranged and energy.high is not None else (),
        slot=slot,
        hover=(f"{words}\nenergy {energy.origin}",),
    )


def _finding(comparison: Comparison, pairs: dict[str, tuple[Quantity, Quantity]], front: tuple[str, ...]) -> str:
    if len(front) == 1:
        words = f"{front[0]} has both the lowest loss and the least energy per token."
    else:
        words = (
            f"No mechanism has less energy and less loss at once than {list_names(front)}: they are the Pareto front."
        )
    decided = any(_LOSS in m.best for m in comparison.mechanisms)
    if not decided:
        losses = [loss.value for _, loss in pairs.values()]
        words += (
            f" But no difference in loss is proved ({min(losses):.3f} to {max(losses):.3f} bits/byte): "
            "on this evidence the energy decides."
        )
    return words


def _how(estimated: bool) -> str:
    words = "The dotted line joins the mechanisms of the front."
    if estimated:
        words += " Energy is an estimate from seconds of CPU work; its range, the same model for all, is in the table."
    return words


def _table(pairs: dict[str, tuple[Quantity, Quantity]], front: tuple[str, ...]) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        Column(key=_ENERGY, heading="energy/token", help="joules per trained token"),
        Column(key=_LOSS, heading="held-out bits/byte", help="loss on held-out text after training"),
        Column(key="front", heading="Pareto front", help="not beaten in both at once", numeric=False),
    )
    rows = tuple(
        (Cell(content=label), Cell(content=energy), Cell(content=loss), Cell(content="yes" if label in front else ""))
        for label, (energy, loss) in pairs.items()
    )
    return Table(columns=columns, rows=rows)
