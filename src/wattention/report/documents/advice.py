"""Advice as a document: the answer in words, the choices with their costs, what was set aside, what would change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.advice_points import Objective, Wish
from wattention.analysis.advise import Advice, Choice
from wattention.analysis.crossover import Crossover
from wattention.core.quantities import Absent, Quantity
from wattention.iocomplexity.planning.levels import Threshold
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import ORIGIN_LEGEND, format_value
from wattention.report.wording import list_names, times
from wattention.study.advising import Answer

ABSORBED_LATENT_DIM = 576
"""Key features of absorbed multi-head latent attention in DeepSeek-V2 and V3: rank 512 and 64 rotary features."""
WIDE_DIM = 512
_CHOICES = (
    Column(key="mechanism", heading="mechanism", help="its name", numeric=False),
    Column(key="attention", heading="attention", help="exact: softmax over all earlier tokens", numeric=False),
    Column(key="time", heading="time\n/token", help="seconds of the workload over its tokens"),
    Column(key="ratio", heading="over\nbest", help="cost in what is ranked by, over the best one's"),
    Column(key="energy", heading="energy\n/token", help="joules of the workload over its tokens"),
    Column(key="memory", heading="memory", help="peak of live tensors; for inference, parameters and cache"),
    Column(key="batch", heading="largest\nbatch", help="sequences of a training step that fit"),
    Column(key="bound", heading="bound by", help="what most of its time is bound by", numeric=False),
    Column(key="front", heading="front", help="nothing beats it in time, memory and energy at once", numeric=False),
    Column(key="budget", heading="budget", help="whether it keeps the energy budget", numeric=False),
)
_CROSSOVERS = (
    Column(key="mechanism", heading="mechanism", help="its name", numeric=False),
    Column(key="from", heading="faster than the best from", help="tokens, interpolated between lengths", numeric=False),
    Column(key="ratio", heading="at the longest", help="its time over the best one's at the longest length tried"),
)
_VERBS: Mapping[Objective, str] = {"time": "fastest", "energy": "most frugal", "memory": "smallest"}


def advice_document(answer: Answer) -> Document:
    """Arrange an answer."""
    advice, point = answer.advice, answer.question.point
    model = point.model
    sections = [_choices_section(advice)]
    if advice.set_aside:
        notes = tuple(f"{name}: {why}." for name, why in advice.set_aside.items())
        sections.append(Section(title="Set aside", notes=notes))
    if advice.changes or advice.robust:
        sections.append(_changes_section(advice))
    if advice.crossovers:
        sections.append(_crossover_section(advice.crossovers, advice.choices[0].mechanism))
    sections.append(_regime_section(answer.thresholds, head_dim=model.width // model.heads))
    unused = tuple(f"Run {folder} is not used: {why}." for folder, why in answer.unused_runs.items())
    marks = tuple(f"{mark[0].upper()}{mark[1:]}." for mark in advice.marks)
    sections.append(Section(title="Notes", notes=(*marks, *unused)))
    return Document(
        title=(
            f"Advice to {advice.wish.workload} GPT-2, {model.layers} layers of width {model.width}, {point.tokens} "
            f"tokens x batch {point.batch}, {point.precision}, on {answer.device}"
        ),
        answer=_answer(advice),
        sections=tuple(sections),
    )


def _answer(advice: Advice) -> str:
    if not advice.choices:
        why = "; ".join(f"{name}: {reason}" for name, reason in advice.set_aside.items())
        return f"Nothing can be used. {why}."
    best, wish = advice.choices[0], advice.wish
    equal = [one.mechanism for one in advice.choices if one.tied]
    told = "predictions" if not any("time" in c.costs and _measured(c) for c in advice.choices) else "numbers"
    words = f"Use {best.mechanism}" if len(equal) == 1 else f"Use {list_names(equal)}: equal as far as {told} can tell"
    head = f"{words}; {_VERBS[wish.by]} of {len(advice.choices)} that may be used, bound by {best.binding}."
    parts = [head]
    if not best.exact:
        parts.append("It is approximate: it computes something else, and its quality must be measured.")
        parts += _first_of("exact attention", [one for one in advice.choices if one.exact])
    elif best.attention != "exact":
        plain = [one for one in advice.choices if one.attention == "exact"]
        parts.append("It has other weights than multi-head attention, so its quality must be measured.")
        parts += _first_of("multi-head attention itself", plain)
    rest = [one for one in advice.choices if not one.tied]
    if rest and best.attention == "exact":
        parts.append(f"Next is {rest[0].mechanism}, at {times(rest[0].ratio)}.")
    return " ".join(parts)


def _first_of(kind: str, choices: Sequence[Choice]) -> list[str]:
    return [f"Of {kind}, {choices[0].mechanism} comes first, at {times(choices[0].ratio)}."] if choices else []


def _measured(choice: Choice) -> bool:
    reading = choice.costs["time"]
    return isinstance(reading, Quantity) and reading.origin == "measured"


def _choices_section(advice: Advice) -> Section:
    budgeted = any(choice.budget for choice in advice.choices)
    columns = _CHOICES if budgeted else _CHOICES[:-1]
    rows = tuple(_row(choice, advice.wish)[: len(columns)] for choice in advice.choices)
    lacking = dict.fromkeys(
        reading.reason for choice in advice.choices for reading in choice.costs.values() if isinstance(reading, Absent)
    )
    return Section(
        title="Choices",
        table=Table(columns=columns, rows=rows) if rows else None,
        notes=(*(f"{choice.mechanism}: {choice.why}." for choice in advice.choices), *lacking),
        marks=f"{ORIGIN_LEGEND}   * equal to the best",
    )


def _row(choice: Choice, wish: Wish) -> tuple[Cell, ...]:
    def cost(objective: Objective) -> Cell:
        return Cell(content=choice.costs[objective], best=choice.tied and objective == wish.by)

    return (
        Cell(content=choice.mechanism),
        Cell(content=choice.attention),
        cost("time"),
        Cell(content=times(choice.ratio)),
        cost("energy"),
        cost("memory"),
        Cell(content="-" if choice.largest_batch is None else str(choice.largest_batch)),
        Cell(content=choice.binding),
        Cell(content="yes" if choice.on_front else ""),
        Cell(content=choice.budget),
    )


def _changes_section(advice: Advice) -> Section:
    notes = [f"{change.condition}: {change.best}." for change in advice.changes]
    if advice.robust:
        notes.append(f"No change: {'; '.join(advice.robust)}.")
    return Section(title="What would change the answer", notes=tuple(notes))


def _crossover_section(crossovers: Mapping[str, Crossover], best: str) -> Section:
    rows = tuple(
        (
            Cell(content=name),
            Cell(content=_crossing(one)),
            Cell(content="-" if one.kind == "unknown" else times(one.ratio_at_longest)),
        )
        for name, one in crossovers.items()
    )
    return Section(title=f"Tokens from which on it is faster than {best}", table=Table(columns=_CROSSOVERS, rows=rows))


def _crossing(crossover: Crossover) -> str:
    return {
        "always": f"<={crossover.length_tokens:.0f}",
        "from": f"about {crossover.length_tokens:.0f}",
        "never": f"not up to {crossover.length_tokens:.0f}",
        "tie": f"equal at {crossover.length_tokens:.0f}",
        "unknown": "lengths not tried",
    }[crossover.kind]


def _regime_section(thresholds: Sequence[Threshold], *, head_dim: int) -> Section:
    """Head dimensions above which small-cache schedules move fewer words through a level than FlashAttention's."""
    where = [
        f"{one.level.name} of a {one.level.holder} ({format_value(one.level.capacity_bytes, 'byte')}): forward d > "
        f"{one.forward_head_dim}, backward d > {one.stored_gradient_head_dim}."
        for one in thresholds
    ]
    dims = ((head_dim, "This model's head dim"), (WIDE_DIM, "A head dim"), (ABSORBED_LATENT_DIM, "Absorbed MLA's"))
    words = []
    for dim, name in dims:
        above = [one.level.name for one in thresholds if dim > one.forward_head_dim]
        if not above:
            words.append(f"{name} {dim} is below it everywhere: FlashAttention's order moves the fewest words.")
            continue
        inside = f"{name} {dim} is in the small-cache regime of {list_names(above)}: there schedules that keep scores"
        words.append(f"{inside} in slow memory move fewer words (wattention io --head-dim {dim}).")
    return Section(title="Where the small-cache regime begins", notes=(*where, *words))
