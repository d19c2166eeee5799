"""Energy of every phase: what a token costs to train, to evaluate and to generate, and what a run pays once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.cells import by_block
from wattention.analysis.energy import PHASES, PhaseOfEnergy, energies, summarise
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Quantity, Reading
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import format_reading, format_value
from wattention.report.wording import times

Found = Mapping[str, Mapping[str, Reading]]
"""By phase, by mechanism."""


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where fewer than two phases have an energy."""
    cells = {m.label: by_block(records, "train").get(m.label, {}) for m in comparison.mechanisms}
    cells = {label: blocks for label, blocks in cells.items() if blocks}
    gross, net = ({p.name: summarise(energies(cells, p, net=net)) for p in PHASES} for net in (False, True))
    if sum(_has_number(found) for found in gross.values()) < 2:
        return None
    place = slots(comparison)
    shown = [phase for phase in PHASES if _has_number(gross[phase.name])]
    views = tuple(
        _view(label, found, shown, place)
        for label, found in (("gross", gross), ("net of idle", net))
        if any(map(_has_number, found.values()))
    )
    return Figure(
        key="energy-phases",
        title="Energy of every phase",
        caption=_finding(gross),
        how=_how(gross),
        views=views,
        table=_table(gross, net),
    )


def _has_number(found: Mapping[str, Reading]) -> bool:
    return any(isinstance(q, Quantity) for q in found.values())


def _axis_name(phase: PhaseOfEnergy) -> str:
    return f"{phase.title}, per {phase.unit.removeprefix('J/')}" if phase.per else f"{phase.title}, once"


def _view(label: str, found: Found, shown: Sequence[PhaseOfEnergy], place: Mapping[str, int]) -> View:
    series = []
    for mechanism, slot in place.items():
        kept = [(phase, q) for phase in shown if isinstance(q := found[phase.name].get(mechanism), Quantity)]
        if not kept:
            continue
        ranges = [
            (q.low, q.high) for _, q in kept if q.low is not None and q.high is not None and q.origin == "measured"
        ]
        known = len(ranges) == len(kept)
        series.append(
            Series(
                name=mechanism,
                x=tuple(_axis_name(phase) for phase, _ in kept),
                y=tuple(q.value for _, q in kept),
                low=tuple(low for low, _ in ranges) if known else (),
                high=tuple(high for _, high in ranges) if known else (),
                slot=slot,
                hover=tuple(f"{mechanism}, {_axis_name(p)}: {format_reading(q, interval=True)}" for p, q in kept),
            )
        )
    return View(label=label, x=Axis(title="phase"), y=Axis(title="energy", unit="J", log=True), series=tuple(series))


def _finding(gross: Found) -> str:
    train, decode = ({k: q for k, q in gross[n].items() if isinstance(q, Quantity)} for n in ("train", "decode"))
    both = sorted(train.keys() & decode.keys())
    if not both:
        names = [phase.title for phase in PHASES if _has_number(gross[phase.name])]
        return f"Energy was resolved for {', '.join(names)}."
    over = {label: decode[label].value / train[label].value for label in both}
    most, least = max(over, key=over.__getitem__), min(over, key=over.__getitem__)
    words = f"A generated token takes {times(over[least])}"
    words += f" ({least}) to {times(over[most])} ({most})" if most != least else ""
    cheapest = min(both, key=lambda label: decode[label].value)
    return (
        f"{words} the energy of a trained one; {cheapest} generates with the least, "
        f"{format_value(decode[cheapest].value, decode[cheapest].unit)}."
    )


def _how(gross: Found) -> str:
    readings = [q for found in gross.values() for q in found.values() if isinstance(q, Quantity)]
    if any(q.origin == "estimated" for q in readings):
        return "Estimated from seconds of CPU work and the watts of a core; ranges are in the table."
    return (
        "Phases shorter than a counter resolves are repeated in a window of their own; what happens once in a process "
        "is not, and may be missing. Prompts and generation have batch 1."
    )


def _table(gross: Found, net: Found) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(
            Column(key=f"{key}{phase.name}_j", heading=f"{phase.title}\n{word}", help=f"{_axis_name(phase)}, {word}")
            for phase in PHASES
            for key, word in (("", "gross"), ("net_", "net"))
        ),
    )
    labels = list(next(iter(gross.values())))
    rows = tuple(
        (
            Cell(content=label),
            *(Cell(content=found[phase.name][label]) for phase in PHASES for found in (gross, net)),
        )
        for label in labels
    )
    return Table(columns=columns, rows=rows)
