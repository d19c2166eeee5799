"""Held-out loss against tokens, seconds and joules of training, with the target: where each mechanism gets there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattention.analysis.cells import by_block
from wattention.analysis.power import mean_power
from wattention.analysis.summary import Comparison
from wattention.analysis.target import TargetTrack
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import format_value
from wattention.report.wording import list_names

_BLOCKS = 2
"""Blocks that are drawn; every block is in the table of the section, and in the records."""

_Series = Callable[[CellRecord], tuple[float, ...]]


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where the run trained to no target."""
    quality = comparison.quality
    cells = by_block(records, "target")
    if quality is None or quality.target is None or not cells:
        return None
    place = slots(comparison)
    ways: tuple[tuple[str, str, str, _Series], ...] = (
        ("tokens", "tokens trained", "token", lambda record: _samples(record, "tokens")),
        ("seconds", "seconds of training", "s", lambda record: _samples(record, "time_s")),
        ("joules", "joules of training", "J", _joules),
    )
    views = []
    for name, title, unit, along in ways:
        drawn = tuple(
            _line(label, block, record, along(record), unit, place[label])
            for label in place
            for block, record in sorted(cells.get(label, {}).items())[:_BLOCKS]
            if along(record)
        )
        if drawn:
            target = _target_line(quality.target, max(float(x) for line in drawn for x in line.x))
            y = Axis(title="held-out loss, bits/byte", unit="bit/byte")
            views.append(View(label=name, x=Axis(title=title, unit=unit), y=y, series=(target, *drawn)))
    return Figure(
        key="heldout-curves",
        title="Held-out loss on the way to the target",
        caption=_finding(quality.target),
        how=f"The dotted line is the target. Evaluations as they are, not smoothed; the first {_BLOCKS} blocks. "
        "Joules are seconds times the mean power of the cell.",
        views=tuple(views),
        table=_table(quality.target),
    )


def _samples(record: CellRecord, name: str) -> tuple[float, ...]:
    return record.phases["target"].samples.get(name, ())


def _joules(record: CellRecord) -> tuple[float, ...]:
    power = mean_power([record])
    return tuple(t * power.value for t in _samples(record, "time_s")) if isinstance(power, Quantity) else ()


def _line(label: str, block: int, record: CellRecord, x: tuple[float, ...], unit: str, slot: int) -> Series:
    losses = _samples(record, "heldout_bits_per_byte")
    name = label if block == 0 else f"{label}, block {block + 1}"
    hover = tuple(
        f"{name}: {loss:.3f} bits/byte after {format_value(at, unit)}" for at, loss in zip(x, losses, strict=True)
    )
    return Series(name=name, x=x, y=losses, mark="line", slot=slot, hover=hover)


def _target_line(track: TargetTrack, end: float) -> Series:
    value = track.target_bits_per_byte.value
    return Series(name="target", x=(0.0, end), y=(value, value), mark="line", quiet=True)


def _finding(track: TargetTrack) -> str:
    target = f"{track.target_bits_per_byte.value:.3f} bits/byte"
    there = [label for label, one in track.mechanisms.items() if one.reached == one.blocks]
    missing = [label for label in track.mechanisms if label not in there]
    words = f"{list_names(there)} reach {target}." if len(there) > 1 else ""
    if len(there) == 1:
        words = f"Only {there[0]} reaches {target} in every block."
    elif not there:
        words = f"No mechanism reaches {target} in every block."
    timed = {label: price for label in there if isinstance(price := track.mechanisms[label].prices["time_s"], Quantity)}
    if len(timed) > 1:
        quickest = min(timed, key=lambda label: timed[label].value)
        words += f" {quickest} takes the fewest seconds, {format_value(timed[quickest].value, 's')}."
    return words + (f" Not in every block within the cap: {list_names(missing)}." if missing and there else "")


def _table(track: TargetTrack) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        Column(key="tokens", heading="tokens to target", help="mean over blocks"),
        Column(key="time_s", heading="seconds to target", help="mean over blocks"),
        Column(key="energy_j", heading="joules to target", help="mean over blocks"),
    )
    rows = tuple(
        (Cell(content=label), *(Cell(content=one.prices[key]) for key in ("tokens", "time_s", "energy_j")))
        for label, one in track.mechanisms.items()
    )
    return Table(columns=columns, rows=rows)
