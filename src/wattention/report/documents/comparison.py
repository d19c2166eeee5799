"""Arrange one comparison as a document: the answer in a sentence, the table of mechanisms, the lengths, the notes."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.summary import Comparison, MechanismSummary
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.run_spec import RunSpec
from wattention.report.document import Document, Section
from wattention.report.sections.equal_quality import quality_sections
from wattention.report.sections.lengths import length_sections
from wattention.report.sections.mechanisms import mechanisms_section
from wattention.report.sections.verdicts import name_winners, verdicts
from wattention.study.store import Damage


def comparison_document(comparison: Comparison, *, name: str, damage: Sequence[Damage] = ()) -> Document:
    """Return the document of one run; damaged lines of its records are named in the notes."""
    quality = comparison.quality
    sections = [
        mechanisms_section(comparison),
        *(() if quality is None else quality_sections(quality, comparison.reference)),
        *length_sections(comparison),
    ]
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
