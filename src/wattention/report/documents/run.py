"""Arrange everything that is known of one run: the comparison, its figures, the method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from wattention.analysis.pairs import Pair, compare_pairs
from wattention.analysis.summary import Comparison, compare_records
from wattention.core.records import CellRecord
from wattention.report.document import Document, Figure, Section
from wattention.report.documents.comparison import comparison_document
from wattention.report.figures import (
    block_differences,
    data_movement,
    energy_phases,
    energy_quality,
    flop_parts,
    heldout_curves,
    joules,
    lengths,
    loss_curves,
    memory_parts,
    power_time,
    power_trace,
    recall_lengths,
)
from wattention.report.sections.energy import carbon_section, energy_section
from wattention.report.sections.method import method_section, specification_section
from wattention.report.sections.pairs import pair_sections
from wattention.study.store import StoredRun

Pairs = Mapping[str, Sequence[Pair]]
Draw = Callable[[Comparison, Sequence[CellRecord]], Figure | None]

FIGURES: tuple[Draw, ...] = (
    heldout_curves.draw,
    recall_lengths.draw,
    energy_quality.draw,
    power_time.draw,
    energy_phases.draw,
    power_trace.draw,
    joules.draw,
    lengths.draw_time,
    lengths.draw_memory,
    lengths.draw_energy,
    loss_curves.draw,
    block_differences.draw,
    memory_parts.draw,
    flop_parts.draw,
    data_movement.draw,
)
"""In reading order; a figure whose data the run does not have draws nothing."""


def run_document(run: StoredRun, comparison: Comparison | None = None, pairs: Pairs | None = None) -> Document:
    """Return the document of one run, complete; terminals may leave out sections marked as detail.

    ``comparison`` and ``pairs`` spare their computation where the caller has them already.
    """
    comparison = comparison or compare_records(run.spec, run.records)
    short = comparison_document(comparison, name=run.folder.name, damage=run.damage)
    figures = tuple(figure for draw in FIGURES if (figure := draw(comparison, run.records)) is not None)
    shown = (Section(title="Figures", figures=figures, detail=True),) if figures else ()
    first, *rest = short.sections
    energy = tuple(
        section
        for section in (energy_section(comparison, run.records), carbon_section(comparison))
        if section is not None
    )
    judged = pair_sections(run.spec, compare_pairs(run.spec, run.records) if pairs is None else pairs)
    method = (method_section(run), specification_section(run))
    return replace(short, sections=(first, *shown, *energy, *rest, *judged, *method))
