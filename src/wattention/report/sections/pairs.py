"""Arrange which pairs of mechanisms are decided: ratio, verdict, what could have been found, blocks still needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.blocks import Estimate, Ratio
from wattention.analysis.pairs import Outcome, Pair
from wattention.analysis.planning import MOST_BLOCKS, POWER
from wattention.core.quantities import Absent, Quantity
from wattention.core.run_spec import DecideSpec, RunSpec
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.ratios import ratio_of
from wattention.report.units import format_interval, significant

_WORDS: dict[str, tuple[str, str]] = {
    "step_s": ("faster", "slower"),
    "energy_per_token_j": ("less energy", "more energy"),
    "peak_tensor_bytes": ("less memory", "more memory"),
    "peak_allocated_bytes": ("less GPU memory", "more GPU memory"),
    "peak_rss_bytes": ("smaller process", "larger process"),
    "cpu_s_per_step": ("less CPU time", "more CPU time"),
    "prefill_s": ("faster prefill", "slower prefill"),
    "decode_s_per_token": ("faster decoding", "slower decoding"),
    "heldout_bits_per_byte": ("lower loss", "higher loss"),
    "recall_accuracy": ("lower accuracy", "higher accuracy"),
}
"""What a smaller and a larger number of a measure mean."""

_COLUMNS = (
    Column(key="pair", heading="pair", help="ours against theirs", numeric=False),
    Column(key="ratio", heading="ratio", help="geometric mean of ours over theirs within blocks, 95 % interval"),
    Column(key="bootstrap", heading="bootstrap\ninterval", help="studentised bootstrap of the same mean, 95 %"),
    Column(key="pooled", heading="pooled\nnoise", help="the table's interval, noise pooled over all mechanisms"),
    Column(key="verdict", heading="verdict", help="by the pair's own noise, corrected for all pairs", numeric=False),
    Column(
        key="detectable",
        heading="could\nfind",
        help="least difference that so many blocks tell from none with a power of 80 %",
    ),
    Column(key="more_blocks", heading="more\nblocks", help="blocks to add until the pair is decided, power 80 %"),
    Column(key="new_run", heading="or a\nnew run", help="blocks of a new run of a fixed number that decide the pair"),
)
EXACT = 1e-6
"""Intervals narrower than this are those of a counted number, and not printed."""
LARGEST_FACTOR = 10.0
"""Detectable ratios beyond this are all the same: the run could find nothing."""


def pair_sections(spec: RunSpec, pairs: Mapping[str, Sequence[Pair]]) -> tuple[Section, ...]:
    """Return the sections about pairs: the measure that decides, the other measures, and disturbed windows.

    The first is a result of a run that was to be decided, and a detail of any other.
    """
    first, others = spec.decided_by, [key for key in pairs if key != spec.decided_by]
    margin = (spec.decide or DecideSpec()).equal_within
    sections = []
    if pairs.get(first):
        table = Table(columns=_COLUMNS, rows=tuple(_row(pair, margin) for pair in pairs[first]))
        notes = (*_notes(spec, pairs[first], margin), *_reasons(pairs[first]))
        asked = spec.decide is not None
        sections.append(
            Section(title="Which pairs are decided", table=table, notes=notes, key="pairs", detail=not asked)
        )
    if any(pairs[key] for key in others):
        rows = [(Cell(content=_name(pair)), *_row(pair, margin)[1:]) for key in others for pair in pairs[key]]
        sections.append(
            Section(
                title="Which pairs are decided, other measures",
                table=Table(columns=_COLUMNS, rows=tuple(rows)),
                notes=("Each measure is a family of its own.",),
                key="pairs-other",
                folded=True,
                detail=True,
            )
        )
    disturbed = [pair for key in pairs for pair in pairs[key] if pair.without_flagged is not None]
    if disturbed:
        sections.append(_disturbed_section(disturbed, margin))
    return tuple(sections)


def verdict_words(pair: Pair, margin: float) -> str:
    """Say the verdict: ``faster``, ``equal within 3 %``, ``undecided``, or that there are no numbers."""
    return _say(pair.outcome, pair.measure, margin)


def _say(outcome: Outcome, measure: str, margin: float) -> str:
    less, more = _WORDS[measure]
    words: dict[Outcome, str] = {
        "less": less,
        "more": more,
        "equal": f"equal within {100 * margin:g} %",
        "undecided": "undecided",
        "no numbers": "no numbers",
    }
    return words[outcome]


def _row(pair: Pair, margin: float) -> tuple[Cell, ...]:
    name = Cell(content=f"{pair.label} / {pair.reference}")
    verdict = Cell(content=verdict_words(pair, margin), alarm=pair.outcome == "no numbers")
    if pair.ratio is None:
        return (name, *(Cell(content="") for _ in range(3)), verdict, *(Cell(content="") for _ in range(3)))
    return (
        name,
        _interval_cell(pair, pair.ratio, f"log-ratios of {pair.blocks} blocks, {_RULES[pair.rule]}"),
        Cell(content="-")
        if isinstance(pair.bootstrap, Absent)
        else _interval_cell(pair, pair.bootstrap, "studentised bootstrap over blocks"),
        _interval_cell(pair, pair.pooled, "additive model, noise pooled over mechanisms"),
        verdict,
        _detectable_cell(pair),
        _blocks_cell(None if pair.plan is None else pair.plan.more_blocks, pair, "to add"),
        _blocks_cell(None if pair.plan is None else pair.plan.new_run_blocks, pair, "of a new run of a fixed number"),
    )


_RULES = {"one look": "t interval", "every block": "interval that holds at every look"}


def _interval_cell(pair: Pair, ratio: Estimate | Ratio | None, how: str) -> Cell:
    if ratio is None:
        return Cell(content="-")
    counted = ratio.low is not None and ratio.high is not None and ratio.high - ratio.low <= EXACT
    low, high = (None, None) if counted else (ratio.low, ratio.high)
    number = ratio_of(
        ratio,
        f"{pair.measure} over that of {pair.reference}: {how}",
        origin="estimated" if pair.origin == "estimated" else "measured",
    )
    return Cell(content=format_interval(ratio.value, low, high, decimals=3), number=number)


def _detectable_cell(pair: Pair) -> Cell:
    if pair.plan is None:
        return Cell(content="-")
    if pair.detectable is None or pair.detectable > LARGEST_FACTOR:
        return Cell(content="nothing")
    source = f"power of {POWER:.0%} at {pair.blocks} blocks, noncentral t distribution"
    number = Quantity(value=pair.detectable, unit="ratio", origin="predicted", source=source)
    percent = 100 * (pair.detectable - 1)
    if percent < EXACT:
        return Cell(content="any", number=number)
    return Cell(content=f"{significant(percent, 2)} %" if percent < 100 else f"{pair.detectable:.1f}x", number=number)


def _blocks_cell(blocks: int | None, pair: Pair, what: str) -> Cell:
    if pair.plan is None:
        return Cell(content="-")
    if blocks is None:
        return Cell(content=f">{MOST_BLOCKS}")
    source = f"blocks {what}, for a power of {POWER:.0%} if the pair is as far apart as it looks"
    return Cell(
        content=str(blocks), number=Quantity(value=float(blocks), unit="block", origin="predicted", source=source)
    )


def _notes(spec: RunSpec, pairs: Sequence[Pair], margin: float) -> tuple[str, ...]:
    decided, judged = sum(p.decided for p in pairs), sum(p.outcome != "no numbers" for p in pairs)
    rule = (
        "it was extended after looks, so all verdicts hold at all looks together (anytime-valid t-test, Holm)"
        if any(p.rule == "every block" for p in pairs)
        else "one look, paired t-test, Holm's correction"
    )
    notes = [
        f"{decided} of {judged} pairs are decided in {_measure(spec.decided_by)}. Each is judged by its own noise: "
        f"{rule}. Equal: proved to lie within {100 * margin:g} %.",
    ]
    apart = [p for p in pairs if p.outcome == "undecided" and p.pooled is not None and not p.pooled.tie]
    if apart and spec.grown_from is None:
        names = ", ".join(f"{p.label} / {p.reference}" for p in apart)
        notes.append(
            f"{names}: different with noise pooled over all mechanisms, as in the main table, which takes them to be "
            f"equally noisy; undecided without that."
        )
    return tuple(notes)


def _reasons(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Why there is no number, no bootstrap, or another verdict without disturbed windows; each reason once."""
    reasons = dict.fromkeys(pair.why for pair in pairs if pair.why)
    bootstraps = dict.fromkeys(p.bootstrap.reason for p in pairs if isinstance(p.bootstrap, Absent))
    return (*reasons, *(f"No bootstrap interval: {reason}." for reason in bootstraps))


def _disturbed_section(pairs: Sequence[Pair], margin: float) -> Section:
    columns = (
        _COLUMNS[0],
        Column(key="rules", heading="flagged by", help="rule, and number of blocks it flagged", numeric=False),
        Column(key="with", heading="with them", help="ratio with all blocks"),
        Column(key="verdict_with", heading="verdict", help="with all blocks", numeric=False),
        Column(key="without", heading="without", help="ratio without flagged blocks"),
        Column(key="verdict_without", heading="verdict", help="without flagged blocks", numeric=False),
    )
    changed = [pair for pair in pairs if pair.changes_without_flagged]
    note = (
        f"The verdict changes for {'; '.join(_name(pair) for pair in changed)}."
        if changed
        else "No verdict changes without them."
    )
    return Section(
        title="With and without disturbed windows",
        table=Table(columns=columns, rows=tuple(_disturbed_row(pair, margin) for pair in pairs)),
        notes=(f"Disturbed windows are kept in every number. {note}",),
        key="disturbed",
        folded=not changed,
        detail=True,
    )


def _disturbed_row(pair: Pair, margin: float) -> tuple[Cell, ...]:
    clean = pair.without_flagged
    assert clean is not None
    without = (
        Cell(content="-")
        if clean.ratio is None
        else _interval_cell(clean, clean.ratio, f"{clean.blocks} blocks without flags")
    )
    return (
        Cell(content=_name(pair)),
        Cell(content=", ".join(f"{kind} ({count})" for kind, count in (pair.rules or {}).items())),
        _interval_cell(pair, pair.ratio, f"all {pair.blocks} blocks"),
        Cell(content=verdict_words(pair, margin)),
        without,
        Cell(content=verdict_words(clean, margin), alarm=pair.changes_without_flagged),
    )


def _name(pair: Pair) -> str:
    return f"{pair.label} / {pair.reference}: {_measure(pair.measure)}"


def _measure(key: str) -> str:
    return {
        "step_s": "time per step",
        "energy_per_token_j": "energy per token",
        "peak_tensor_bytes": "peak tensors",
        "peak_allocated_bytes": "peak GPU memory",
        "peak_rss_bytes": "peak RSS",
        "cpu_s_per_step": "CPU time per step",
        "prefill_s": "prefill",
        "decode_s_per_token": "decoding per token",
        "heldout_bits_per_byte": "held-out loss",
        "recall_accuracy": "recall accuracy",
    }[key]
