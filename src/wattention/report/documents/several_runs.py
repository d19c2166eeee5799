"""Arrange several runs side by side: only ratios to each run's own baseline, because seconds of different hosts,
or of one host at different times, are not comparable; each run's own sections follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wattention.analysis.method import host_of
from wattention.analysis.summary import Comparison, compare_records
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.documents.run import run_document
from wattention.study.store import StoredRun

_MEASURES = (
    ("step_s", "time"),
    ("energy_per_token_j", "energy"),
    ("peak_tensor_bytes", "peak tensors"),
    ("peak_allocated_bytes", "peak GPU memory"),
)


def several_document(runs: Sequence[StoredRun]) -> Document:
    """Return one document: the runs side by side, then the sections of each."""
    comparisons = [compare_records(run.spec, run.records) for run in runs]
    names = _names(runs)
    sections = [_across(runs, comparisons, names)]
    settings = []
    for number, (run, comparison, name) in enumerate(zip(runs, comparisons, names, strict=True), start=1):
        own = run_document(run, comparison)
        settings.append(f"{name}: {own.answer}")
        sections += [
            replace(
                section,
                title=f"{name}: {section.title}",
                key=f"run{number}-{section.anchor}",
                figures=tuple(replace(figure, key=f"run{number}-{figure.key}") for figure in section.figures),
            )
            for section in own.sections
        ]
    title = f"wattention comparison: {' and '.join(names)}"
    return Document(title=title, answer="\n".join(settings), sections=tuple(sections))


def across_section(runs: Sequence[StoredRun]) -> Section:
    """Return the table of ratios of all runs, each to its own baseline."""
    return _across(runs, [compare_records(run.spec, run.records) for run in runs], _names(runs))


def _names(runs: Sequence[StoredRun]) -> list[str]:
    """Name runs by their folders; two of one name get a number."""
    names = [run.folder.resolve().name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name}#{names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def _across(runs: Sequence[StoredRun], comparisons: Sequence[Comparison], names: Sequence[str]) -> Section:
    labels = dict.fromkeys(m.label for comparison in comparisons for m in comparison.mechanisms)
    shown = [
        (key, words)
        for key, words in _MEASURES
        if any(isinstance(m.quantities[key], Quantity) for comparison in comparisons for m in comparison.mechanisms)
    ]
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(
            Column(
                key=f"{name}_{key}",
                heading=f"{words}\n{name}",
                help=f"{words} over that of {comparison.reference} in run {name}",
            )
            for key, words in shown
            for name, comparison in zip(names, comparisons, strict=True)
        ),
    )
    rows = tuple(
        (Cell(content=label), *(Cell(content=_ratio(c, label, key)) for key, _ in shown for c in comparisons))
        for label in labels
    )
    return Section(
        title="Runs side by side", table=Table(columns=columns, rows=rows), notes=_notes(runs, comparisons, names)
    )


def _ratio(comparison: Comparison, label: str, key: str) -> Reading:
    summary = next((m for m in comparison.mechanisms if m.label == label), None)
    reference = next(m for m in comparison.mechanisms if m.label == comparison.reference)
    if summary is None:
        return Absent("not part of this run")
    ours, theirs = summary.quantities[key], reference.quantities[key]
    if isinstance(ours, Absent):
        return ours
    if isinstance(theirs, Absent):
        return Absent(f"the baseline has none: {theirs.reason}")
    paired = summary.time_ratio if key == "step_s" else None
    source = f"over {comparison.reference} of the same run; {ours.source}"
    return Quantity(
        value=ours.value / theirs.value if paired is None else paired.value,
        unit="ratio",
        origin=ours.origin,
        source=source,
        low=None if paired is None else paired.low,
        high=None if paired is None else paired.high,
    )


def _notes(runs: Sequence[StoredRun], comparisons: Sequence[Comparison], names: Sequence[str]) -> tuple[str, ...]:
    hosts = {name: ", ".join(host_of(run.records)) or "unknown" for run, name in zip(runs, names, strict=True)}
    different = len(set(hosts.values())) > 1 or "unknown" in hosts.values()
    notes = [
        "Every number is a ratio to the baseline of the same run: "
        + ", ".join(f"{name} to {c.reference}" for name, c in zip(names, comparisons, strict=True))
        + ".",
        "Hosts: " + ", ".join(f"{name} ran on {host}" for name, host in hosts.items()) + ".",
    ]
    if different:
        notes.append("The hosts differ or are unknown: their seconds and joules are never mixed, only ratios compared.")
    same = {"seed": 0, "blocks": 1, "decide": None, "grown_from": None}
    if len({run.spec.replace(**same).model_dump_json() for run in runs}) > 1:
        notes.append("The runs were asked for different things (see their specifications): ratios may differ for that.")
    return tuple(notes)
