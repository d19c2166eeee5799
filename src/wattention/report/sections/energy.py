"""The energy of a run in two sections: joules of training with what they contain, and the emissions they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.carbon import carbon_of
from wattention.analysis.cells import by_block
from wattention.analysis.energy import GROSS, NET, TRAIN, EnergyRatio, Joules, energies, idle_power, ratios, summarise
from wattention.analysis.power import mean_power
from wattention.analysis.summary import Comparison, MechanismSummary
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord
from wattention.hardware.carbon import NO_FACTOR
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.ratios import ratio_cell

_ENERGY_COLUMNS = (
    Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
    Column(key=GROSS, heading="gross\n/token", help="joules per trained token"),
    Column(key="energy_ratio", heading="gross\nratio", help="over the reference's, paired within blocks"),
    Column(key=NET, heading="net\n/token", help="joules per trained token above the idle machine's"),
    Column(key="net_energy_ratio", heading="net\nratio", help="over the reference's, paired within blocks"),
    Column(key="power_w", heading="power", help="mean power of the energy window"),
    Column(key="idle_w", heading="idle", help="power of the waiting machine, before and after the work"),
)
_HOW = (
    "Intervals hold the counter's steps, the sensor's class and the spread over blocks (GUM, JCGM 100:2008). In a "
    "ratio the sensor's gain cancels, because both were measured on one host."
)


def energy_section(comparison: Comparison, records: Sequence[CellRecord]) -> Section | None:
    """Return joules of training, gross and net, with ratios; None where no mechanism has an energy."""
    finished = _with_energy(comparison)
    if not finished:
        return None
    trained = by_block(records, "train")
    cells = {m.label: trained.get(m.label, {}) for m in finished}
    found = {net: ratios(energies(cells, TRAIN, net=net), comparison.reference) for net in (False, True)}
    rows = tuple(_row(m, found, list(cells[m.label].values()), comparison.reference) for m in finished)
    return Section(
        title="Energy of training",
        key="energy",
        table=Table(columns=_ENERGY_COLUMNS, rows=rows),
        notes=tuple(dict.fromkeys(_contents(m) for m in finished)) + ((_HOW,) if _any_measured(finished) else ()),
        detail=True,
    )


def _with_energy(comparison: Comparison) -> list[MechanismSummary]:
    return [m for m in comparison.mechanisms if m.status == "ok" and isinstance(m.quantities[GROSS], Quantity)]


def _any_measured(finished: Sequence[MechanismSummary]) -> bool:
    return any(isinstance(q := m.quantities[GROSS], Quantity) and q.origin == "measured" for m in finished)


def _row(
    summary: MechanismSummary,
    found: Mapping[bool, Mapping[str, EnergyRatio]],
    records: Sequence[CellRecord],
    reference: str,
) -> tuple[Cell, ...]:
    label, gross = summary.label, summary.quantities[GROSS]
    assert isinstance(gross, Quantity)

    def ratio(*, net: bool) -> Cell:
        if label in found[net]:
            return ratio_cell(found[net][label], f"energy over that of {reference}, paired", origin=gross.origin)
        return Cell(content="1" if label == reference else "")

    return (
        Cell(content=label),
        Cell(content=gross),
        ratio(net=False),
        Cell(content=summary.quantities[NET]),
        ratio(net=True),
        Cell(content=mean_power(records)),
        Cell(content=_idle(records)),
    )


def _idle(records: Sequence[CellRecord]) -> Reading:
    """Mean idle power over a mechanism's cells, with the range of them."""
    found = [idle_power(record) for record in records]
    watts = [one for one in found if isinstance(one, Joules)]
    if not watts:
        return next((one for one in found if isinstance(one, Absent)), Absent("no cell finished"))
    return summarise({"": dict(enumerate(watts))})[""]


def _contents(summary: MechanismSummary) -> str:
    """What is in the joules and what is not, as the instrument says it; numbers of single windows left out."""
    gross = summary.quantities[GROSS]
    assert isinstance(gross, Quantity)
    if gross.origin == "estimated":
        model, _, _ = gross.source.partition("; idle share")
        return (
            f"The energy is ESTIMATED, not measured: {model}. Net is the part above the idle share of the same model."
        )
    contents, _, _ = gross.source.partition("; range")
    return f"The energy is measured: {contents}."


def carbon_section(comparison: Comparison) -> Section | None:
    """Return the emissions of training, or the reason for their absence; None where there is no energy either."""
    finished = _with_energy(comparison)
    if not finished:
        return None
    factor, spec = comparison.spec.measure.carbon, comparison.spec
    tokens = spec.tokens_per_step * spec.training.steps
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        Column(key="carbon_per_token_kg", heading="gross\n/token", help="CO2 equivalent per trained token"),
        Column(key="net_carbon_per_token_kg", heading="net of idle\n/token", help="above the idle machine's"),
        Column(key="carbon_kg", heading="one\ntraining", help=f"CO2 equivalent of one training of {tokens} tokens"),
    )
    rows = []
    for summary in finished:
        gross, net = summary.quantities[GROSS], summary.quantities[NET]
        whole = _times(gross, tokens)
        rows.append((Cell(content=summary.label), *(Cell(content=carbon_of(q, factor)) for q in (gross, net, whole))))
    note = (
        f"absent: {NO_FACTOR}"
        if factor is None
        else f"Factor: {factor.source}. An average of a grid, so every number is an estimate; what the energy leaves "
        "out (cooling, power supply, making the machine) is left out here too."
    )
    return Section(
        title="Carbon", key="carbon", table=Table(columns=columns, rows=tuple(rows)), notes=(note,), detail=True
    )


def _times(reading: Reading, tokens: int) -> Reading:
    """The energy of so many tokens."""
    if isinstance(reading, Absent):
        return reading
    return reading.mapped(lambda value: value * tokens, unit="J", source=reading.source)
