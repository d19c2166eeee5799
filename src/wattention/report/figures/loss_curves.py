"""Training loss against tokens, seconds and joules: the same learning, paid in three currencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wattention.analysis.curves import LossCurve, loss_curves
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Quantity, measured
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import format_value

_ROWS = 12
_VIEWS: tuple[tuple[str, str, str, Callable[[LossCurve], tuple[float, ...]]], ...] = (
    ("tokens", "tokens trained", "token", lambda curve: curve.tokens),
    ("seconds", "seconds of training", "s", lambda curve: curve.time_s),
    ("joules", "joules of training", "J", lambda curve: curve.energy_j),
)


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where no record kept its losses."""
    curves = {label: c for label, c in loss_curves(comparison.spec, records).items() if len(c.loss_nats) > 1}
    if not curves:
        return None
    place = slots(comparison)
    views = tuple(
        View(
            label=name,
            x=Axis(title=title, unit=unit),
            y=Axis(title="training loss, nats/token", unit="nat/token"),
            series=tuple(
                _series(label, curves[label], where(curves[label]), unit, place[label])
                for label in place
                if label in curves and where(curves[label])
            ),
        )
        for name, title, unit, where in _VIEWS
        if any(where(curve) for curve in curves.values())
    )
    return Figure(
        key="loss-curves",
        title="Loss against what it cost",
        caption=_finding(curves),
        how=_how(curves),
        views=views,
        table=_table(curves),
    )


def _series(label: str, curve: LossCurve, x: tuple[float, ...], unit: str, slot: int) -> Series:
    hover = tuple(
        f"{label}: {loss:.3f} nats/token after {format_value(at, unit)}"
        for at, loss in zip(x, curve.loss_nats, strict=True)
    )
    return Series(name=label, x=x, y=curve.loss_nats, mark="line", slot=slot, hover=hover)


def _finding(curves: Mapping[str, LossCurve]) -> str:
    ends = {label: _end(curve) for label, curve in curves.items()}
    lowest, highest = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    words = f"After {_tokens(next(iter(curves.values())).tokens[-1])} tokens"
    words += (
        f" the training loss lies between {ends[lowest]:.2f} ({lowest}) and {ends[highest]:.2f} nats/token ({highest}),"
        " means of the last tenth."
        if len(ends) > 1
        else f" the training loss of {lowest} is {ends[lowest]:.2f} nats/token, the mean of the last tenth."
    )
    timed = {label: curve for label, curve in curves.items() if curve.time_s}
    if len(timed) > 1:
        quickest = min(timed, key=lambda label: timed[label].time_s[-1])
        slowest = max(timed, key=lambda label: timed[label].time_s[-1])
        end = timed[quickest].time_s[-1]
        reached = sum(t <= end for t in timed[slowest].time_s) / len(timed[slowest].time_s)
        words += (
            f" When {quickest} is through, after {format_value(end, 's')}, {slowest} has seen {100 * reached:.0f} %."
        )
    return words


def _end(curve: LossCurve) -> float:
    """Single batches are noisy."""
    last = curve.loss_nats[-max(1, len(curve.loss_nats) // 10) :]
    return sum(last) / len(last)


def _tokens(tokens: float) -> str:
    return format_value(tokens, "token").removesuffix("token").rstrip()


def _how(curves: Mapping[str, LossCurve]) -> str:
    words = "Means over blocks; every mechanism of a block sees the same batches."
    power = next((curve.power for curve in curves.values() if curve.power is not None), None)
    if power is not None:
        words += f" Joules are seconds times the mean power of the energy window ({power.origin})."
    return words


def _table(curves: Mapping[str, LossCurve]) -> Table:
    """A few points of every curve: its loss by tokens, and what the whole cost."""
    longest = max(curves.values(), key=lambda curve: len(curve.tokens))
    stride = -(-len(longest.tokens) // _ROWS)
    picked = range(stride - 1, len(longest.tokens), stride)
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(
            Column(
                key=f"loss_after_{longest.tokens[i]:.0f}",
                heading=f"loss after\n{_tokens(longest.tokens[i])} tokens",
                help="training loss in nats per token, mean over blocks",
            )
            for i in picked
        ),
        Column(key="time_s", heading="seconds", help="of all steps, warm-up included"),
        Column(key="energy_j", heading="joules", help="seconds times mean power"),
    )
    return Table(columns=columns, rows=tuple(_row(label, curve, picked) for label, curve in curves.items()))


def _row(label: str, curve: LossCurve, picked: range) -> tuple[Cell, ...]:
    source = "training batches, mean over blocks"
    losses = [
        Cell(content=measured(curve.loss_nats[i], "nat/token", source) if i < len(curve.loss_nats) else "")
        for i in picked
    ]
    time = Cell(content=measured(curve.time_s[-1], "s", "clock of the steps") if curve.time_s else "")
    energy = Cell(content="")
    if curve.energy_j and curve.power is not None:
        power = curve.power
        energy = Cell(
            content=Quantity(
                value=curve.energy_j[-1], unit="J", origin=power.origin, source=f"seconds x {power.source}"
            )
        )
    return (Cell(content=label), *losses, time, energy)
