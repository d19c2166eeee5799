"""Energy per token is time per token times power: which of the two makes the difference, mechanism by mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wattention.analysis.cells import by_block
from wattention.analysis.power import PowerTimeSplit, Share, mean_power, split_energy
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Origin, Quantity
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.ratios import ratio_cell
from wattention.report.units import format_value
from wattention.report.wording import times


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
    own = View(
        label="power and time",
        x=Axis(title="time per token", unit="s/token", log=True),
        y=Axis(title="mean power while training", unit="W", zero=True),
        series=(*_same_energy(found, comparison.reference), *points),
    )
    splits = {net: split_energy(cells, comparison.reference, net=net) for net in (False, True)}
    shown = {label: split for label, split in splits[False].items() if label in found}
    views = (
        *(
            _split_view(f"what saves energy, {'net' if net else 'gross'}", split)
            for net, split in splits.items()
            if split
        ),
        own,
    )
    return Figure(
        key="power-time",
        title="Power and time",
        caption=" ".join((_finding(found), *(sentence(label, split) for label, split in shown.items()))),
        how=_how(found, comparison.reference, net=bool(splits[True])),
        views=views if len(views) > 1 else (replace(own, label=""),),
        table=_table(found, splits),
    )


def sentence(label: str, split: PowerTimeSplit) -> str:
    """Say in one sentence how much energy a mechanism saves, and which part of that time and power save."""
    saved = split.saved
    if split.energy.tie:
        start = f"{label} ties in energy ({_percent(saved.value)} saved, not proved)"
    elif saved.value >= 0:
        start = f"{label} saves {_percent(saved.value)} energy"
    else:
        start = f"{label} takes {_percent(-saved.value)} more energy"
    sign = 1 if split.energy.tie or saved.value >= 0 else -1
    return f"{start}: {_part(split.from_time, 'time', sign)}, {_part(split.from_power, 'power', sign)}."


def _part(share: Share, name: str, sign: int) -> str:
    return f"{_percent(sign * share.value)} from {name}{'' if share.decided else ' (a tie)'}"


def _percent(share: float) -> str:
    rounded = round(100 * share)
    return f"{rounded} %" if rounded or share == 0 else f"{100 * share:.1g} %"


def _split_view(label: str, splits: dict[str, PowerTimeSplit]) -> View:
    parts = (("saved in all", "saved"), ("from time", "from_time"), ("from power", "from_power"))
    return View(
        label=label,
        x=Axis(title="mechanism"),
        y=Axis(title="energy saved per token, of the reference's", unit="%", zero=True),
        series=tuple(_bars(words, part, slot, splits) for slot, (words, part) in enumerate(parts)),
    )


def _bars(words: str, part: str, slot: int, splits: dict[str, PowerTimeSplit]) -> Series:
    shares: dict[str, Share] = {label: getattr(split, part) for label, split in splits.items()}
    ranges = [(s.low, s.high) for s in shares.values() if s.low is not None and s.high is not None]
    known = len(ranges) == len(shares)
    return Series(
        name=words,
        x=tuple(shares),
        y=tuple(100 * share.value for share in shares.values()),
        low=tuple(100 * low for low, _ in ranges) if known else (),
        high=tuple(100 * high for _, high in ranges) if known else (),
        mark="bars",
        slot=slot,
        hover=tuple(f"{words}\n{sentence(label, split)}" for label, split in splits.items()),
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


def _how(found: dict[str, tuple[Quantity, Quantity]], reference: str, *, net: bool) -> str:
    if reference not in found:
        return ""
    words = (
        f"Savings are against {reference}, paired within blocks: ln(E ratio) = ln(T ratio) + ln(P ratio), shared out "
        "in proportion to the logarithms, with 95 % intervals; what does not differ provably is called a tie."
    )
    if net:
        words += " Net is above what the idle machine draws in the same time."
    return f"{words} On the dotted line a token costs as much energy as with {reference}; below and left of it, less."


def _table(found: dict[str, tuple[Quantity, Quantity]], splits: dict[bool, dict[str, PowerTimeSplit]]) -> Table:
    ratios = [(net, split) for net, split in splits.items() if split]
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        Column(key="s_per_token", heading="time/token", help="seconds per trained token"),
        Column(key="power_w", heading="power", help="mean power of the energy window"),
        *(column for net, _ in ratios for column in _ratio_columns("net_" if net else "", "net " if net else "")),
    )
    rows = tuple(
        (
            Cell(content=label),
            Cell(content=time),
            Cell(content=power),
            *(cell for _, split in ratios for cell in _ratio_cells(label, split)),
        )
        for label, (time, power) in found.items()
    )
    return Table(columns=columns, rows=rows)


def _ratio_columns(key: str, word: str) -> tuple[Column, ...]:
    return (
        *(
            Column(key=f"{key}{what}_ratio", heading=f"{word}{what}\nratio", help=f"{word}{what} over the reference's")
            for what in ("energy", "time", "power")
        ),
        Column(key=f"{key}words", heading=f"{word}in words", help="which part of the saving is time's", numeric=False),
    )


def _ratio_cells(label: str, splits: dict[str, PowerTimeSplit]) -> tuple[Cell, ...]:
    split = splits.get(label)
    if split is None:
        return (Cell(content=""),) * 4
    source = "paired within blocks, energy windows of training"
    origin: Origin = "estimated" if split.estimated else "measured"
    found = (split.energy, split.time, split.power)
    return (*(ratio_cell(one, source, origin=origin) for one in found), Cell(content=sentence(label, split)))
