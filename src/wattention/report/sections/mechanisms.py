"""The table of mechanisms: one row each, speed, memory, work, energy, inference and quality, with the time ratio."""

from __future__ import annotations

from wattention.analysis.summary import Comparison, MechanismSummary
from wattention.core.quantities import Quantity
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.ratios import ratio_of, ratio_text
from wattention.report.units import ORIGIN_LEGEND

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


def mechanisms_section(comparison: Comparison) -> Section:
    """Return the table; columns without a number are left out, rows of mechanisms that failed say why."""
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
    return ratio_of(ratio, source)


def _ratio_text(summary: MechanismSummary, reference: str) -> str:
    ratio = summary.time_ratio
    if summary.label == reference:
        return "1"
    if ratio is None:
        return "-"
    return ratio_text(ratio)
