"""Say which mechanism wins by time, by energy, by memory and by quality, what ties, and what cannot be told here."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.summary import Comparison, MechanismSummary
from wattention.core.quantities import Absent, Quantity
from wattention.report.document import Verdict
from wattention.report.units import format_value, significant


def verdicts(comparison: Comparison) -> tuple[Verdict, ...]:
    """Return the four answers of a comparison; none where fewer than two mechanisms finished."""
    finished = [m for m in comparison.mechanisms if m.status == "ok"]
    if len(finished) < 2:
        return ()
    memory = "peak_allocated_bytes" if comparison.spec.device.startswith("cuda") else "peak_tensor_bytes"
    quality = "recall_accuracy" if comparison.spec.data.task == "recall" else "heldout_bits_per_byte"
    questions = (
        ("Fastest", "step_s", "per step"),
        ("Least energy", "energy_per_token_j", ""),
        ("Least memory", memory, "at the peak"),
        ("Best quality", quality, "held out"),
    )
    return tuple(_verdict(comparison, finished, *question) for question in questions)


def name_winners(winners: Sequence[MechanismSummary]) -> str:
    """Name one winner, or those that tie."""
    return winners[0].label if len(winners) == 1 else f"{' = '.join(m.label for m in winners)} (tie)"


def _verdict(
    comparison: Comparison, finished: Sequence[MechanismSummary], question: str, key: str, what: str
) -> Verdict:
    readings = {m.label: m.quantities[key] for m in finished}
    numbers = {label: q for label, q in readings.items() if isinstance(q, Quantity)}
    if len(numbers) < 2:
        absent = next((r for r in readings.values() if isinstance(r, Absent)), Absent("one mechanism has a number"))
        return Verdict(question=question, answer="not measurable here", detail=absent.reason, decided=False)
    winners = [m for m in finished if key in m.best]
    if not winners:
        values = [q.value for q in numbers.values()]
        unit = next(iter(numbers.values())).unit
        span = f"{format_value(min(values), unit)} to {_words(max(values), unit)}"
        return Verdict(
            question=question,
            answer=f"a tie of all {len(numbers)}",
            detail=f"{span} {what}; no difference is proved",
            decided=False,
        )
    return Verdict(
        question=question, answer=name_winners(winners), detail=_detail(comparison, winners, key, what, numbers)
    )


def _detail(
    comparison: Comparison, winners: Sequence[MechanismSummary], key: str, what: str, numbers: dict[str, Quantity]
) -> str:
    """The winner's number, its ratio to the reference, and whether it is only an estimate."""
    higher = key == "recall_accuracy"
    pick = max if higher else min
    leader = pick((m.label for m in winners), key=lambda label: numbers[label].value)
    best, reference = numbers[leader], numbers.get(comparison.reference)
    words = f"{_words(best.value, best.unit)} {what}".rstrip()
    if reference is not None and leader != comparison.reference and not higher:
        words += f", {significant(best.value / reference.value, 2)}x {comparison.reference}"
    if best.origin == "estimated":
        words += "; by an estimate, no counter could be read"
    return words


def _words(value: float, unit: str) -> str:
    return f"{format_value(value, unit)}{' bits/byte' if unit == 'bit/byte' else ''}"
