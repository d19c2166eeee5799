"""Arrange a sweep: one row a point and mechanism, ratios to the point's own baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.summary import Comparison, MechanismSummary, compare_records
from wattention.core.quantities import Absent, Reading
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.ratios import ratio_of
from wattention.study.store import StoredRun

_MEASURES = (
    ("tokens_per_s", "tokens/s", "training speed"),
    ("energy_per_token_j", "energy\n/token", "energy of a training token"),
    ("peak_tensor_bytes", "peak\ntensors", "peak of tensor memory in a step"),
    ("heldout_bits_per_byte", "held-out\nbits/byte", "loss on held-out text"),
)


def sweep_document(
    name: str, axes: Sequence[str], values: Mapping[str, Mapping[str, str]], runs: Mapping[str, StoredRun]
) -> Document:
    """Return the summary over the points.

    Args:
        axes: those with more than one value.
        values: by point, by axis.
        runs: by point.
    """
    columns = (
        *(Column(key=axis, heading=axis, help=f"value on the axis {axis}", numeric=False) for axis in axes),
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        Column(key="time_ratio", heading="time over\nbaseline", help="time per step over the point's own baseline"),
        *(Column(key=key, heading=heading, help=words) for key, heading, words in _MEASURES),
    )
    rows, notes = [], []
    for point, run in runs.items():
        comparison = compare_records(run.spec, run.records)
        where = tuple(Cell(content=values[point][axis]) for axis in axes)
        rows += [(*where, *_row(comparison, mechanism)) for mechanism in comparison.mechanisms]
        notes += [f"{point}: {m.label}: {m.detail}" for m in comparison.mechanisms if m.status != "ok"]
    notes.append("Ratios are to the baseline of the same point; seconds of different hosts are not comparable.")
    table = Table(columns=columns, rows=tuple(rows))
    return Document(
        title=f"wattention sweep {name}",
        answer=f"{len(runs)} points, {len(rows)} mechanisms measured",
        sections=(Section(title="Points", table=table, notes=tuple(notes)),),
    )


def _row(comparison: Comparison, mechanism: MechanismSummary) -> tuple[Cell, ...]:
    return (
        Cell(content=mechanism.label),
        Cell(content=_ratio(comparison, mechanism)),
        *(Cell(content=mechanism.quantities[key], best=key in mechanism.best) for key, _, _ in _MEASURES),
    )


def _ratio(comparison: Comparison, mechanism: MechanismSummary) -> Reading:
    ratio = mechanism.time_ratio
    if mechanism.label == comparison.reference:
        return Absent("it is what the others are compared with")
    if ratio is None:
        return Absent(mechanism.detail or f"{comparison.reference} has no time")
    source = f"paired with {comparison.reference} within blocks"
    return ratio_of(ratio, source)
