"""Arrange one comparison as a document: the answer in a sentence, the table of mechanisms, the lengths, the notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.crossover import Crossover
from wattention.analysis.lengths import LengthPoint
from wattention.analysis.summary import Comparison, MechanismSummary
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.run_spec import RunSpec
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.sections.equal_quality import quality_sections
from wattention.report.sections.verdicts import name_winners, verdicts
from wattention.report.units import ORIGIN_LEGEND, significant
from wattention.study.store import Damage

_MEASURED_COLUMNS: tuple[Column, ...] = (
    Column(key="tokens_per_s", heading="tokens/s", help="tokens trained per second, forward, backward and optimiser"),
    Column(key="time_ratio", heading="time\nratio", help="time per step over the reference's, paired within blocks"),
    Column(key="step_s", heading="step", help="time of one training step"),
    Column(key="peak_tensor_bytes", heading="peak\ntensors", help="most bytes of live tensors in one training step"),
    Column(key="peak_allocated_bytes", heading="peak\nGPU mem", help="most bytes allocated on the device in training"),
    Column(
        key="peak_rss_bytes", heading="peak\nRSS", help="high-water mark of the process's resident memory in training"
    ),
    Column(
        key="flop_per_token", heading="FLOP\n/token", help="model FLOPs per token, forward and backward, whole model"
    ),
    Column(key="cpu_s_per_step", heading="CPU s\n/step", help="CPU seconds of the process tree per training step"),
    Column(key="energy_per_token_j", heading="energy\n/token", help="joules per trained token"),
    Column(
        key="net_energy_per_token_j", heading="net of\nidle", help="joules per trained token above the idle machine's"
    ),
    Column(
        key="carbon_per_token_kg",
        heading="carbon\n/token",
        help="energy per trained token times the factor of --carbon",
    ),
    Column(key="prefill_s", heading="prefill", help="time to read a prompt, batch 1"),
    Column(key="decode_s_per_token", heading="decode\n/token", help="time per generated token, batch 1"),
    Column(key="cache_bytes_per_token", heading="cache\n/token", help="bytes kept for decoding, per token, all layers"),
    Column(key="heldout_bits_per_byte", heading="held-out\nbits/byte", help="loss on held-out text after training"),
    Column(key="recall_accuracy", heading="recall\naccuracy", help="share of recalled values that are right"),
)


def comparison_document(comparison: Comparison, *, name: str, damage: Sequence[Damage] = ()) -> Document:
    """Return the document of one run; damaged lines of its records are named in the notes."""
    sections = [_main_section(comparison)]
    if comparison.quality is not None:
        sections += quality_sections(comparison.quality, comparison.reference)
    if any(comparison.lengths.values()):
        sections.append(_length_section(comparison))
        sections.append(_crossover_section(comparison))
    damaged = tuple(
        f"{one.file} line {one.line} is {'left out' if one.repeat else 'unreadable and left out'}: {one.reason}"
        for one in damage
    )
    sections.append(Section(title="Notes", notes=(*damaged, *comparison.notes, *_absences(comparison))))
    return Document(
        title=f"wattention comparison: {name}",
        answer=_answer(comparison),
        sections=tuple(sections),
        verdicts=verdicts(comparison),
        setting=_setting(comparison),
    )


def _setting(comparison: Comparison) -> str:
    spec = comparison.spec
    tokens = spec.training.tokens or spec.model.context
    return (
        f"GPT-2, {spec.model.layers} layers of width {spec.model.width}, "
        f"{tokens} tokens x batch {spec.training.batch}, {spec.training.steps} steps, "
        f"{spec.training.precision}, {spec.device}{_ranks(spec)}, {spec.blocks} blocks."
    )


def _ranks(spec: RunSpec) -> str:
    return "" if spec.parallel == "none" else f" x {spec.ranks} ranks ({spec.parallel})"


def _answer(comparison: Comparison) -> str:
    """Say in words which mechanism wins what; ties are named together."""
    spec, finished = comparison.spec, [m for m in comparison.mechanisms if m.status == "ok"]
    setting = _setting(comparison)
    if len(finished) < 2:
        return setting
    claims = [
        f"{title}: {name_winners(winners)}{_by_estimate(winners, key)}"
        for title, key in (
            ("Fastest", "step_s"),
            ("smallest", "peak_allocated_bytes" if spec.device.startswith("cuda") else "peak_tensor_bytes"),
            ("least energy", "energy_per_token_j"),
            ("best held-out loss", "heldout_bits_per_byte"),
        )
        if (winners := [m for m in finished if key in m.best])
    ]
    return f"{setting}\n{'; '.join(claims)}." if claims else setting


def _by_estimate(winners: list[MechanismSummary], key: str) -> str:
    reading = winners[0].quantities[key]
    return ", by an estimate" if isinstance(reading, Quantity) and reading.origin == "estimated" else ""


def _main_section(comparison: Comparison) -> Section:
    finished = [m for m in comparison.mechanisms if m.status == "ok"]
    shown = tuple(
        column
        for column in _MEASURED_COLUMNS
        if column.key == "time_ratio"
        or any(isinstance(m.quantities[column.key], Quantity) for m in finished)
        # energy that could not be had is a finding, not a column to hide
        or column.key == "energy_per_token_j"
    )
    columns = (
        Column(key="mechanism", heading="mechanism", help="label of the mechanism in this run", numeric=False),
        Column(key="kernel", heading="kernel that ran", help="attention kernels seen by the profiler", numeric=False),
        *shown,
    )
    rows = tuple(_row(m, shown, comparison.reference) for m in comparison.mechanisms)
    return Section(
        title="Mechanisms",
        table=Table(columns=columns, rows=rows),
        marks=f"{ORIGIN_LEGEND}   * best, or tied with the best   ± half of a 95 % interval",
    )


def _row(summary: MechanismSummary, columns: tuple[Column, ...], reference: str) -> tuple[Cell, ...]:
    label = Cell(content=summary.label)
    if summary.status != "ok":
        words = summary.status.replace("_", " ")
        if summary.failed_clauses:
            words = f"refused: {', '.join(summary.failed_clauses)}"
        return (label, Cell(content=words, alarm=True), *(Cell(content="") for _ in columns))
    cells = []
    for column in columns:
        if column.key == "time_ratio":
            cells.append(Cell(content=_ratio_text(summary, reference), number=_ratio(summary, reference)))
        else:
            cells.append(Cell(content=summary.quantities[column.key], best=column.key in summary.best))
    return (label, Cell(content=", ".join(summary.kernels) or "-"), *cells)


def _ratio(summary: MechanismSummary, reference: str) -> Quantity | None:
    ratio = summary.time_ratio
    if ratio is None:
        return None
    source = f"time per step over that of {reference}, paired within blocks"
    return Quantity(value=ratio.value, unit="ratio", origin="measured", source=source, low=ratio.low, high=ratio.high)


def _ratio_text(summary: MechanismSummary, reference: str) -> str:
    ratio = summary.time_ratio
    if summary.label == reference:
        return "1"
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    interval = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{interval} tie" if ratio.tie else interval


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


def _absences(comparison: Comparison) -> tuple[str, ...]:
    """One note per reason for which a shown number is missing, or merely estimated."""
    reasons: dict[str, list[str]] = {}
    for summary in comparison.mechanisms:
        if summary.status != "ok":
            continue
        reading = summary.quantities["energy_per_token_j"]
        reasons.setdefault(_energy_note(reading), []).append(summary.label)
    reasons.pop("", None)
    return tuple(
        note if len(labels) == len(comparison.mechanisms) else f"{', '.join(labels)}: {note}"
        for note, labels in reasons.items()
    )


def _energy_note(reading: Reading) -> str:
    if isinstance(reading, Absent):
        return f"energy: {reading.reason}"
    if reading.origin == "estimated":
        model, _, _ = reading.source.partition("; idle share")  # which differs from one mechanism to the next
        return f"energy is ESTIMATED, not measured: {model}."
    return ""
