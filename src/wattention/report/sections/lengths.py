"""One attention layer at several lengths: its time, peak and energy, and from which length on which one is cheaper."""

from __future__ import annotations

from collections.abc import Mapping

from wattention.analysis.crossover import Crossover
from wattention.analysis.lengths import LengthPoint
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Absent, Quantity
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.units import significant


def length_sections(comparison: Comparison) -> tuple[Section, ...]:
    """Return the two sections; none where no length was measured."""
    if not any(comparison.lengths.values()):
        return ()
    return (_length_section(comparison), _crossover_section(comparison))


def _length_section(comparison: Comparison) -> Section:
    lengths = sorted({length for points in comparison.lengths.values() for length in points})
    measured = any(isinstance(p.energy_j, Quantity) for points in comparison.lengths.values() for p in points.values())
    energy = (("energy", "energy"),) if measured else ()
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(
            Column(key=f"{quantity}_{length}", heading=f"{heading}\nT={length}", help=f"{heading} at {length} tokens")
            for quantity, heading in (("time", "time"), ("memory", "peak"), *energy)
            for length in lengths
        ),
    )
    rows = tuple(
        (
            Cell(content=label),
            *(Cell(content=_point(points, length).time_s) for length in lengths),
            *(Cell(content=_point(points, length).peak_bytes) for length in lengths),
            *(Cell(content=_point(points, length).energy_j) for _ in energy for length in lengths),
        )
        for label, points in comparison.lengths.items()
        if points
    )
    shape = comparison.spec.model
    return Section(
        title=f"One attention layer, forward + backward, batch 1, {shape.heads} heads of {shape.width // shape.heads}",
        table=Table(columns=columns, rows=rows),
    )


def _point(points: Mapping[int, LengthPoint], length: int) -> LengthPoint:
    missing = Absent("not measured")
    return points.get(length, LengthPoint(time_s=missing, peak_bytes=missing))


def _crossover_section(comparison: Comparison) -> Section:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(
            Column(key=f"{rival}_{quantity}", heading=f"{adjective}\nthan {rival}", help="", numeric=False)
            for rival in ("baseline", "flash")
            for quantity, adjective in (("time", "faster"), ("memory", "smaller"), ("energy", "less energy"))
            if any((rival, quantity) in found for found in comparison.crossovers.values())
        ),
    )
    keys = [tuple(column.key.split("_")) for column in columns[1:]]
    rows = tuple(
        (Cell(content=label), *(Cell(content=_crossover_text(found.get((rival, what)))) for rival, what in keys))
        for label, found in comparison.crossovers.items()
        if comparison.lengths.get(label)
    )
    return Section(
        title="Tokens from which on a layer is cheaper",
        table=Table(columns=columns, rows=rows),
        notes=("interpolated; a tie is no gain; in brackets the ratio at the longest length both were measured at",),
    )


def _crossover_text(found: Crossover | None) -> str:
    if found is None:
        return ""
    if found.kind == "unknown":
        return "not measured"
    ratio = f"({significant(found.ratio_at_longest, 2)}x)"
    length = significant(found.length_tokens, 2) if found.kind == "from" else f"{found.length_tokens:g}"
    if found.kind == "tie":
        return f"tie {ratio}"
    words = {"always": "<=", "from": "about ", "never": "not up to "}[found.kind]
    return f"{words}{length} {ratio}"
