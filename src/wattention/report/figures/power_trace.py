"""The power of one cell over its time, its phases shaded: what each of them draws, as the sampler saw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.cells import by_block
from wattention.analysis.energy import PHASES
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Absent, Quantity, measured
from wattention.core.records import CellRecord, Phase
from wattention.report.document import Axis, Band, Cell, Column, Figure, Series, Table, View
from wattention.report.units import format_value

_SOURCE = "mean of the power samples in the window, sampled in another process"
_NAMES = {
    "idle_before": "idle",
    "idle_after": "idle again",
    "warmup": "warm-up",
    **{phase.key: f"{phase.title}, repeated" for phase in PHASES},
}


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure, one view a mechanism, each of its first block; None where no sampler ran beside the work."""
    labels = [summary.label for summary in comparison.mechanisms]
    cells = by_block(records, "train")
    traced = {
        label: record.phases
        for label in labels
        for record in list(cells.get(label, {}).values())[:1]
        if any("power_w" in phase.samples for phase in record.phases.values())
    }
    if not traced:
        return None
    names = list(dict.fromkeys(name for phases in traced.values() for name in _in_time(phases)))
    power = {label: {name: _mean(phases.get(name, Phase())) for name in names} for label, phases in traced.items()}
    return Figure(
        key="power-trace",
        title="Power over time",
        caption=_finding(power),
        how="The first block of each mechanism; shaded stretches are the phases, time between them is not measured. A "
        "long trace is averaged over equal stretches of samples.",
        views=tuple(_view(label, phases) for label, phases in traced.items()),
        table=_table(power, names),
    )


def _in_time(phases: Mapping[str, Phase]) -> list[str]:
    """Names of the phases that have a place in time and power samples, in the order they were run."""
    found = {name: phase.samples["window_s"][0] for name, phase in phases.items() if _is_traced(phase)}
    return sorted(found, key=found.__getitem__)


def _is_traced(phase: Phase) -> bool:
    return "power_w" in phase.samples and "window_s" in phase.samples


def _title(name: str) -> str:
    return _NAMES.get(name, name)


def _mean(phase: Phase) -> Quantity | Absent:
    watts = phase.samples.get("power_w", ())
    if not watts:
        return Absent("no power sample fell into this phase")
    return measured(sum(watts) / len(watts), "W", _SOURCE)


def _view(label: str, phases: Mapping[str, Phase]) -> View:
    names = _in_time(phases)
    return View(
        label=label,
        x=Axis(title="seconds since the cell's first window", unit="s"),
        y=Axis(title="power of the sampled device", unit="W", zero=True),
        series=tuple(_line(label, name, phases[name]) for name in names),
        bands=tuple(
            Band(name=_title(name), begin=phases[name].samples["window_s"][0], end=phases[name].samples["window_s"][1])
            for name in names
        ),
    )


def _line(label: str, name: str, phase: Phase) -> Series:
    at_s, watts = phase.samples["power_at_s"], phase.samples["power_w"]
    return Series(
        name=label,
        x=at_s,
        y=watts,
        mark="line",
        hover=tuple(
            f"{label}, {_title(name)}: {format_value(w, 'W')} at {s:.3g} s" for s, w in zip(at_s, watts, strict=True)
        ),
    )


def _finding(power: dict[str, dict[str, Quantity | Absent]]) -> str:
    """Say what training draws, against the idle machine where that was watched."""
    train = {label: q for label, found in power.items() if isinstance(q := found.get("train", Absent("")), Quantity)}
    if not train:
        return "The sampler's trace of each phase."
    most, least = (pick(train, key=lambda label: train[label].value) for pick in (max, min))
    words = f"While training, {most} draws the most power, {format_value(train[most].value, 'W')}"
    words += f", and {least} the least, {format_value(train[least].value, 'W')}" if most != least else ""
    idle = [
        q.value
        for found in power.values()
        for name, q in found.items()
        if name.startswith("idle") and isinstance(q, Quantity)
    ]
    if idle:
        words += f"; the idle machine draws {format_value(sum(idle) / len(idle), 'W')}"
    return words + "."


def _table(power: dict[str, dict[str, Quantity | Absent]], names: Sequence[str]) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(Column(key=f"{name}_power_w", heading=_title(name), help=f"mean power in {name}") for name in names),
    )
    rows = tuple(
        (Cell(content=label), *(Cell(content=found[name]) for name in names)) for label, found in power.items()
    )
    return Table(columns=columns, rows=rows)
