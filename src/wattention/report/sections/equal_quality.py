"""Quality held equal, as sections: the way to the target, the searches, the spreads of seeds, recall by length."""

from __future__ import annotations

from collections.abc import Mapping

from wattention.analysis.equal_quality import EqualQuality, MatchSummary
from wattention.analysis.searches import SearchSummary
from wattention.analysis.seeds import SeedSummary, Spread
from wattention.analysis.target import TargetRatio, TargetSummary, TargetTrack
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.ratios import ratio_of, ratio_text
from wattention.report.units import ORIGIN_MARKS, format_interval, format_reading, format_value, significant

_MECHANISM = Column(key="mechanism", heading="mechanism", help="label of the mechanism", numeric=False)
_PRICES = (("tokens", "tokens"), ("time_s", "time"), ("energy_j", "energy"))


def quality_sections(quality: EqualQuality, reference: str) -> tuple[Section, ...]:
    """Return one section for each thing that the run was asked to hold equal."""
    sections = []
    if quality.target is not None:
        sections.append(_target_section(quality.target, reference))
    if quality.recall:
        sections.append(_recall_section(quality.recall))
    if quality.matches:
        sections.append(_match_section(quality.matches, reference))
    if quality.searches:
        sections.append(_search_section(quality.searches))
    if quality.seeds:
        sections.append(_seed_section(quality.seeds))
    return tuple(sections)


def _target_section(track: TargetTrack, reference: str) -> Section:
    columns = [_MECHANISM, Column(key="reached", heading="reached", help="in which blocks", numeric=False)]
    for key, word in _PRICES:
        columns.append(Column(key=key, heading=f"{word}\nto target", help=f"{word} of training to the target loss"))
        help_text = f"{word} to the target over that of {reference}, paired within blocks"
        columns.append(Column(key=f"{key}_ratio", heading=f"{word}\nratio", help=help_text))
    columns.append(Column(key="best", heading="best\nbits/byte", help="lowest smoothed held-out loss of any block"))
    columns.append(Column(key="evaluation_s", heading="evaluating\nbeside", help="seconds of evaluation in one cell"))
    rows = tuple(_target_row(label, one, label == reference) for label, one in track.mechanisms.items())
    missing = [f"{label}: {_first_reason(one)}" for label, one in track.mechanisms.items() if one.reached < one.blocks]
    return Section(
        title="To the same held-out loss",
        key="target",
        table=Table(columns=tuple(columns), rows=rows),
        notes=(track.rule, *missing, *_limit_note(track)),
    )


def _target_row(label: str, one: TargetSummary, is_reference: bool) -> tuple[Cell, ...]:
    cells = [Cell(content=label), Cell(content=_reached(one), alarm=not one.reached)]
    for key, _ in _PRICES:
        cells.append(Cell(content=one.prices[key]))
        ratio = one.ratios[key]
        text = "1" if is_reference else _ratio_text(ratio, one.prices[key])
        cells.append(Cell(content=text, number=_ratio_number(ratio, key, one.prices[key])))
    return (*cells, Cell(content=one.best_bits_per_byte), Cell(content=one.evaluation_s))


def _reached(one: TargetSummary) -> str:
    if one.reached == one.blocks:
        return "yes"
    return f"{one.reached} of {one.blocks} blocks" if one.reached else "not reached"


def _first_reason(one: TargetSummary) -> str:
    reading = one.prices["tokens"]
    return reading.reason if isinstance(reading, Absent) else "not reached"


def _ratio_text(ratio: TargetRatio | None, price: Reading) -> str:
    if ratio is None:
        return "-"
    if ratio.limit != "exact":
        return f"{'>' if ratio.limit == 'at_least' else '<'}{significant(ratio.value)}"
    mark = ORIGIN_MARKS[price.origin] if isinstance(price, Quantity) else ""
    return mark + ratio_text(ratio)


def _ratio_number(ratio: TargetRatio | None, key: str, price: Reading) -> Quantity | None:
    if ratio is None or ratio.limit != "exact" or isinstance(price, Absent):
        return None
    source = f"{key} to the target over that of the reference, paired within blocks"
    return ratio_of(ratio, source, origin=price.origin)


def _limit_note(track: TargetTrack) -> tuple[str, ...]:
    ratios = [ratio for one in track.mechanisms.values() for ratio in one.ratios.values() if ratio is not None]
    if all(ratio.limit == "exact" for ratio in ratios):
        return ()
    return (
        "> and <: a cell that gave up tells only that it would have taken more than it spent; such ratios are limits.",
    )


def _recall_section(recall: Mapping[str, Mapping[int, Quantity]]) -> Section:
    lengths = sorted({length for found in recall.values() for length in found})
    columns = (
        _MECHANISM,
        *(
            Column(key=f"recall_{n}", heading=f"recall\nT={n}", help=f"share of questions right in {n} tokens")
            for n in lengths
        ),
    )
    missing = Absent("not asked")
    rows = tuple(
        (Cell(content=label), *(Cell(content=_share_text(found.get(n, missing)), number=found.get(n)) for n in lengths))
        for label, found in recall.items()
    )
    note = (
        "In brackets Wilson's 95 % interval over the questions; more tokens put more between a pair and its question."
    )
    return Section(title="Recall against length", key="recall", table=Table(columns=columns, rows=rows), notes=(note,))


def _share_text(share: Reading) -> str:
    if isinstance(share, Absent) or share.low is None or share.high is None:
        return format_reading(share)
    return format_interval(share.value, share.low, share.high, decimals=3)


def _match_section(matches: Mapping[str, MatchSummary], reference: str) -> Section:
    what = "FLOPs per token" if next(iter(matches.values())).value.unit == "flop/token" else "parameters"
    columns = (
        _MECHANISM,
        Column(key="mlp_width", heading="MLP\nwidth", help="hidden features of the MLP"),
        Column(key="matched", heading=what, help=f"{what} of the whole model"),
        Column(key="mismatch", heading="mismatch", help=f"over those of {reference}, less one"),
    )
    rows = tuple(
        (
            Cell(content=label),
            Cell(content=str(one.mlp_width)),
            Cell(content=_exact_text(one.value), number=one.value),
            Cell(content=f"{100 * one.mismatch.value:+.2f} %", number=one.mismatch),
        )
        for label, one in matches.items()
    )
    note = f"The MLP's width is chosen so that {what} are those of {reference} within 1 %; all else is as named."
    return Section(title="Matched sizes", key="match", table=Table(columns=columns, rows=rows), notes=(note,))


def _exact_text(value: Quantity) -> str:
    return f"={value.value:,.0f}" if value.unit == "1" else format_reading(value, short=True)


def _search_section(searches: Mapping[str, SearchSummary]) -> Section:
    rates = next(iter(searches.values())).validation
    columns = (
        _MECHANISM,
        Column(key="chosen", heading="learning\nrate", help="the one chosen"),
        *(
            Column(key=f"loss_at_{rate:g}", heading=f"loss at\n{rate:g}", help="validation loss, nats per target")
            for rate in rates
        ),
        Column(key="tokens", heading="tokens\nspent", help="trained on in the search"),
        Column(key="time_s", heading="time\nspent", help="seconds of training in the search"),
        Column(key="energy_j", heading="energy\nspent", help="joules of training in the search"),
    )
    rows = tuple(
        (
            Cell(content=label),
            Cell(content=_rate_text(one.chosen), number=_number(one.chosen)),
            *(Cell(content=_loss_text(loss), number=_number(loss)) for loss in one.validation.values()),
            *(Cell(content=reading) for reading in (one.tokens, one.time_s, one.energy_j)),
        )
        for label, one in searches.items()
    )
    notes = ["The same rates and probes for every mechanism, judged on windows that no reported loss uses."]
    notes += [
        f"{label}: the best rate is the last one tried at its end of the list; a better one may lie beyond it."
        for label, one in searches.items()
        if one.at_edge
    ]
    return Section(title="Learning rates", key="tune", table=Table(columns=columns, rows=rows), notes=tuple(notes))


def _number(reading: Reading) -> Quantity | None:
    return reading if isinstance(reading, Quantity) else None


def _rate_text(rate: Reading) -> str:
    return f"{rate.value:g}" if isinstance(rate, Quantity) else "none"


def _loss_text(loss: Reading) -> str:
    return f"{loss.value:.3f}" if isinstance(loss, Quantity) else "diverged"


def _seed_section(seeds: Mapping[str, SeedSummary]) -> Section:
    columns = [_MECHANISM]
    for key, word in (("loss", "held-out loss"), ("step_s", "step")):
        columns.append(Column(key=key, heading=word, help=f"{word}, mean over all blocks"))
        columns.append(
            Column(key=f"{key}_seeds", heading=f"{word}\nover seeds", help="standard deviation, of the mean")
        )
        columns.append(
            Column(key=f"{key}_reruns", heading=f"{word}\nover reruns", help="standard deviation, of the mean")
        )
    columns.append(Column(key="repeats", heading="repeats", help="reruns lose the same, bit for bit", numeric=False))
    rows = tuple(
        (
            Cell(content=label),
            *_spread_cells(one.loss),
            *_spread_cells(one.step_s),
            Cell(content={True: "bit for bit", False: "NO", None: "-"}[one.repeats], alarm=one.repeats is False),
        )
        for label, one in seeds.items()
    )
    notes = [
        "Standard deviations as a share of the mean, with 95 % intervals: over seeds (the reruns' share removed), and "
        "over reruns of one seed. A difference smaller than the spread over seeds needs more seeds, not more reruns."
    ]
    notes += [f"{label}: reruns of one seed differ: {one.difference}" for label, one in seeds.items() if one.difference]
    return Section(
        title="Seeds and reruns", key="seeds", table=Table(columns=tuple(columns), rows=rows), notes=tuple(notes)
    )


def _spread_cells(spread: Spread) -> tuple[Cell, ...]:
    mean = spread.mean
    middle = Cell(content=mean)
    if isinstance(mean, Quantity) and mean.unit == "s":
        middle = Cell(content=format_value(mean.value, "s"), number=mean)
    return (middle, *(_sd_cell(sd, mean) for sd in (spread.over_seeds, spread.over_reruns)))


def _sd_cell(sd: Reading, mean: Reading) -> Cell:
    if not isinstance(sd, Quantity) or not isinstance(mean, Quantity) or not mean.value:
        return Cell(content=sd)
    value, low, high = (significant(100 * (v or 0.0) / mean.value, 2) for v in (sd.value, sd.low, sd.high))
    return Cell(content=f"{value} % [{low}, {high}]", number=sd)
