"""What it took each mechanism to reach the target loss, paired within blocks; what did not reach it is censored.

A cell that gave up at its cap tells a lower limit: it would have taken more than it spent. Such a block has no number,
so a mean over the blocks that did reach the target would flatter (only the lucky seeds are in it). Therefore

- a mechanism has a mean only where all of its blocks reached the target;
- against a reference that always reached it, a censored mechanism's ratio is *at least* the geometric mean of
  (spent or taken) / (reference's) over blocks, and the other way round *at most*;
- where both are censored nothing is said.

What a target takes depends on the seed, so reruns of one seed count as one observation, their geometric mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean, median
from typing import Literal

from wattention.analysis.blocks import BlockModel, fit_blocks
from wattention.analysis.cells import by_block, by_seed
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord
from wattention.core.run_spec import RunSpec

PRICES: Mapping[str, tuple[str, str]] = {
    "tokens": ("tokens_to_target", "spent_tokens"),
    "time_s": ("time_to_target_s", "spent_time_s"),
    "energy_j": ("energy_to_target_j", "spent_energy_j"),
}
"""What a target is paid in: the reading where it was reached, and the reading of what was spent where it was not."""


@dataclass(frozen=True, kw_only=True)
class TargetRatio:
    """A mechanism's price over the reference's.

    Args:
        limit: ``exact``; ``at_least`` where the mechanism, ``at_most`` where the reference gave up in some block.
        low, high: 95 % interval of an exact one.
        tie: no difference is proved; a limit proves none.
    """

    value: float
    limit: Literal["exact", "at_least", "at_most"] = "exact"
    low: float | None = None
    high: float | None = None
    tie: bool = True


@dataclass(frozen=True, kw_only=True)
class TargetSummary:
    """One mechanism on its way to the target.

    Args:
        reached, blocks: in how many of its finished blocks it got there.
        prices: by ``tokens``, ``time_s``, ``energy_j``: the mean over blocks, or why there is none.
        ratios: by the same keys, over the reference; None where nothing can be said.
        best_bits_per_byte: the lowest smoothed held-out loss in any block.
        evaluation_s: seconds of evaluation in one cell, which no price contains.
    """

    reached: int
    blocks: int
    prices: Mapping[str, Reading]
    ratios: Mapping[str, TargetRatio | None]
    best_bits_per_byte: Reading
    evaluation_s: Reading


@dataclass(frozen=True, kw_only=True)
class TargetTrack:
    """The whole track: the target, how it came about and how it is judged, and every mechanism's way to it."""

    target_bits_per_byte: Quantity
    rule: str
    mechanisms: Mapping[str, TargetSummary]


def summarise_target(spec: RunSpec, records: Sequence[CellRecord]) -> TargetTrack | None:
    """Return the track of a run; None where no cell of it finished."""
    cells = by_block(records, "target")
    if not cells:
        return None
    first = next(record for blocks in cells.values() for record in blocks.values())
    models = {price: _fit(spec, price, cells) for price in PRICES}
    return TargetTrack(
        target_bits_per_byte=_target(spec, first),
        rule=_rule(spec, first),
        mechanisms={
            label: _summary(label, cells, models, spec.reference)
            for label in (choice.label for choice in spec.mechanisms)
            if label in cells
        },
    )


def _target(spec: RunSpec, record: CellRecord) -> Quantity:
    value = float(record.facts["target"]["heldout_bits_per_byte"])
    if spec.target is not None and spec.target.loss == "auto":
        source = f"mean held-out loss of {spec.reference} after the fixed tokens"
        return Quantity(value=value, unit="bit/byte", origin="measured", source=source)
    return Quantity(value=value, unit="bit/byte", origin="counted", source="stated by the user")


def _rule(spec: RunSpec, record: CellRecord) -> str:
    facts = record.facts["target"]
    fixed = spec.training.steps * spec.tokens_per_step
    whence = "stated"
    if spec.target is not None and spec.target.loss == "auto":
        whence = f"the mean held-out loss of {spec.reference} after the fixed {fixed} tokens"
    return (
        f"Target: {facts['heldout_bits_per_byte']:.4f} bits per byte on held-out text, {whence}. Evaluated every "
        f"{facts['evaluate_every_steps']} steps, smoothed by the mean of {facts['smoothing_evaluations']} evaluations, "
        f"reached at the first of {facts['patience_evaluations']} in a row at or below it, given up after "
        f"{facts['most_tokens']} tokens. Tokens, time and energy count training only."
    )


def _summary(
    label: str, cells: Mapping[str, Mapping[int, CellRecord]], models: Mapping[str, BlockModel | None], reference: str
) -> TargetSummary:
    blocks = cells[label]
    best = [q for r in blocks.values() if isinstance(q := _reading(r, "best_smoothed_bits_per_byte"), Quantity)]
    evaluation = [q for r in blocks.values() if isinstance(q := _evaluation_s(r), Quantity)]
    return TargetSummary(
        reached=sum(_reached(record) for record in blocks.values()),
        blocks=len(blocks),
        prices={price: _price(price, label, blocks, models[price]) for price in PRICES},
        ratios={price: _ratio(price, label, reference, cells, models[price]) for price in PRICES},
        best_bits_per_byte=min(best, key=lambda q: q.value) if best else Absent("no evaluation was recorded"),
        evaluation_s=Quantity(
            value=median(q.value for q in evaluation), unit="s", origin="measured", source=evaluation[0].source
        )
        if evaluation
        else Absent("the evaluations were not timed"),
    )


def _reading(record: CellRecord, name: str) -> Reading:
    return record.phases["target"].readings.get(name, Absent(f"the target phase recorded no {name}"))


def _evaluation_s(record: CellRecord) -> Reading:
    return record.phases["evaluate"].readings.get("time_s", Absent("the evaluations were not timed"))


def _reached(record: CellRecord) -> bool:
    return isinstance(_reading(record, "tokens_to_target"), Quantity)


def _fit(spec: RunSpec, price: str, cells: Mapping[str, Mapping[int, CellRecord]]) -> BlockModel | None:
    """Fit the mechanisms that reached the target in every block, and whose price could be had in all, by seed."""
    numbers: dict[str, dict[int, float]] = {}
    for label, blocks in cells.items():
        readings = {block: _reading(record, PRICES[price][0]) for block, record in blocks.items()}
        if all(isinstance(q, Quantity) and q.value > 0 for q in readings.values()):
            numbers[label] = by_seed(spec, {b: q.value for b, q in readings.items() if isinstance(q, Quantity)})
    return fit_blocks(numbers) if numbers else None


def _price(price: str, label: str, blocks: Mapping[int, CellRecord], model: BlockModel | None) -> Reading:
    readings = [_reading(record, PRICES[price][0]) for record in blocks.values()]
    missing = [reading for reading in readings if isinstance(reading, Absent)]
    if missing:
        where = f"in {len(missing)} of {len(readings)} blocks: " if len(readings) > 1 else ""
        return Absent(f"{where}{missing[0].reason}")
    numbers = [reading for reading in readings if isinstance(reading, Quantity)]
    first = numbers[0]
    if model is None or label not in model.labels:
        return Absent("a price of zero has no mean ratio")
    mean = model.mean(label)
    low, high = mean.low, mean.high
    if first.origin == "estimated":
        low = min((q.low for q in numbers if q.low is not None), default=None)
        high = max((q.high for q in numbers if q.high is not None), default=None)
    return Quantity(value=mean.value, unit=first.unit, origin=first.origin, source=first.source, low=low, high=high)


def _ratio(
    price: str,
    label: str,
    reference: str,
    cells: Mapping[str, Mapping[int, CellRecord]],
    model: BlockModel | None,
) -> TargetRatio | None:
    if label == reference or reference not in cells or model is None:
        return None
    if label in model.labels and reference in model.labels:
        ratio = model.ratios_to(reference)[label]
        return TargetRatio(value=ratio.value, low=ratio.low, high=ratio.high, tie=ratio.tie)
    ours, theirs = cells[label], cells[reference]
    common = sorted(ours.keys() & theirs.keys())
    gave_up = [not all(_reached(blocks[block]) for block in common) for blocks in (ours, theirs)]
    if gave_up[0] == gave_up[1]:
        return None
    logs = []
    for block in common:
        pair = [_taken_or_spent(price, blocks[block]) for blocks in (ours, theirs)]
        if pair[0] is None or pair[1] is None:
            return None
        logs.append(log(pair[0] / pair[1]))
    return TargetRatio(value=exp(fmean(logs)), limit="at_least" if gave_up[0] else "at_most")


def _taken_or_spent(price: str, record: CellRecord) -> float | None:
    reading = _reading(record, PRICES[price][0 if _reached(record) else 1])
    return reading.value if isinstance(reading, Quantity) and reading.value > 0 else None
