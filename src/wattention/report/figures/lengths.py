"""One attention layer's time, peak memory and energy against the sequence length, on log axes, with its crossings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from wattention.analysis.crossover import Crossover
from wattention.analysis.lengths import RIVALS
from wattention.analysis.summary import Comparison
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import format_reading, significant
from wattention.report.wording import list_names

_WORDS = {
    "time": ("faster", "time, forward and backward", "s", "time_s"),
    "memory": ("smaller", "peak of live tensors", "byte", "peak_bytes"),
    "energy": ("less energy", "energy, forward and backward", "J", "energy_j"),
}
Points = Mapping[str, Mapping[int, Quantity]]


def draw_time(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure of time; None where fewer than two lengths were measured."""
    del records
    return _draw(comparison, "time", "Time against length")


def draw_memory(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure of peak memory; None where fewer than two lengths were measured."""
    del records
    return _draw(comparison, "memory", "Memory against length")


def draw_energy(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure of energy; None where fewer than two lengths were resolved by a counter, or estimated."""
    del records
    return _draw(comparison, "energy", "Energy against length")


def _draw(comparison: Comparison, what: str, title: str) -> Figure | None:
    _, axis, unit, attribute = _WORDS[what]
    readings: dict[str, dict[int, Reading]] = {
        label: {length: getattr(p, attribute) for length, p in points.items()}
        for label, points in comparison.lengths.items()
    }
    numbers = {
        label: {length: q for length, q in sorted(found.items()) if isinstance(q, Quantity)}
        for label, found in readings.items()
    }
    numbers = {label: found for label, found in numbers.items() if found}
    lengths = sorted({length for found in numbers.values() for length in found})
    if len(lengths) < 2:
        return None
    place = slots(comparison)
    rival = next((name for name in RIVALS if name in numbers), "")
    curves = tuple(
        Series(
            name=label,
            x=tuple(found),
            y=tuple(q.value for q in found.values()),
            low=_ranges(found)[0],
            high=_ranges(found)[1],
            mark="both",
            slot=place[label],
            hover=tuple(f"{label} at {length} tokens: {format_reading(q)}" for length, q in found.items()),
        )
        for label, found in numbers.items()
    )
    view = View(
        label="",
        x=Axis(title="tokens", unit="token", log=True),
        y=Axis(title=axis, unit=unit, log=True),
        series=(*_crossings(comparison, numbers, rival, what), *curves),
    )
    return Figure(
        key=f"length-{what}",
        title=title,
        caption=_finding(comparison, rival, what, lengths),
        how=_how(numbers, rival, what),
        views=(view,),
        table=_table(readings, lengths),
    )


def _ranges(found: Mapping[int, Quantity]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Intervals of measured numbers; the range of an estimate, one model for all, would hide every difference."""
    known = [(q.low, q.high) for q in found.values() if q.low is not None and q.high is not None]
    if len(known) < len(found) or any(q.origin == "estimated" for q in found.values()):
        return (), ()
    return tuple(low for low, _ in known), tuple(high for _, high in known)


def _how(numbers: Points, rival: str, what: str) -> str:
    words = "One attention layer, batch 1."
    if rival:
        words += f" Dotted stems mark the interpolated crossings with {rival}."
    if what == "energy":
        if any(q.origin == "estimated" for found in numbers.values() for q in found.values()):
            words += " Energy is an estimate from seconds of CPU work; its range is in the table."
        else:
            words += " Gross energy; at each length the passes are repeated until the counter resolves them."
    return words


def _crossings(comparison: Comparison, numbers: Points, rival: str, what: str) -> tuple[Series, ...]:
    """A stem from the rival's curve to the axis at every length from which a mechanism is cheaper."""
    floor = min(q.value for found in numbers.values() for q in found.values())
    out = []
    for label, found in comparison.crossovers.items():
        crossing = found.get((rival, what))
        if crossing is None or crossing.kind != "from" or rival not in numbers:
            continue
        length = crossing.length_tokens
        height = _at(numbers[rival], length)
        words = f"{label} {_WORDS[what][0]} than {rival} from about {significant(length, 2)} tokens"
        out.append(
            Series(name=words, x=(length, length), y=(height, floor), mark="line", quiet=True, hover=(words, words))
        )
    return tuple(out)


def _at(found: Mapping[int, Quantity], length: float) -> float:
    """The rival's cost at a length between two measured ones, interpolated on log axes."""
    below = max(known for known in found if known <= length)
    above = min(known for known in found if known >= length)
    if below == above:
        return found[below].value
    share = math.log(length / below) / math.log(above / below)
    return math.exp((1 - share) * math.log(found[below].value) + share * math.log(found[above].value))


def _finding(comparison: Comparison, rival: str, what: str, lengths: Sequence[int]) -> str:
    adjective = _WORDS[what][0]
    found = {label: c[rival, what] for label, c in comparison.crossovers.items() if (rival, what) in c}
    if not found:
        return f"Measured at {len(lengths)} lengths from {lengths[0]} to {lengths[-1]} tokens."
    parts = []
    for kind, words in (
        ("always", f"at every length from {lengths[0]} tokens on"),
        ("from", "from about"),
        ("tie", f"not provably, even at {lengths[-1]} tokens"),
        ("never", f"not up to {lengths[-1]} tokens"),
    ):
        labels = [label for label, one in found.items() if one.kind == kind]
        if labels:
            parts.append(_group(kind, labels, words, found))
    return f"{adjective.capitalize()} than {rival}: {'; '.join(parts)}."


def _group(kind: str, labels: Sequence[str], words: str, found: Mapping[str, Crossover]) -> str:
    if kind != "from":
        return f"{words} {list_names(labels)}"
    lengths: dict[str, list[str]] = {}
    for label in sorted(labels, key=lambda label: found[label].length_tokens):
        lengths.setdefault(significant(found[label].length_tokens, 2), []).append(label)
    return ", ".join(f"{words} {length} tokens {list_names(ours)}" for length, ours in lengths.items())


def _table(readings: Mapping[str, Mapping[int, Reading]], lengths: Sequence[int]) -> Table:
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False),
        *(Column(key=str(length), heading=f"T={length}", help=f"at {length} tokens") for length in lengths),
    )
    rows = tuple(
        (Cell(content=label), *(Cell(content=found.get(length, Absent("not measured"))) for length in lengths))
        for label, found in readings.items()
        if found
    )
    return Table(columns=columns, rows=rows)
