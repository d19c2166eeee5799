"""Which pairs of mechanisms are decided, by their own noise: intervals, verdicts, and what it would take to know more.

The table of a comparison pools noise over all mechanisms (``analysis/blocks.py``). Here every pair is judged by its own
log-ratios within blocks alone (``analysis/paired.py``), which holds also where one mechanism is noisier than another.
In a run of a fixed number of blocks a verdict rests on the t-test of one look; in a run that was extended after its
results could be seen, on the test that holds at every look (``analysis/sequential.py``). Either way the family of pairs
keeps 95 %: differences by Holm's method, equality by intervals at 1 - 5 % / pairs.

Disturbed windows stay in every number; a pair that contains some is judged a second time without the blocks they are
in, and carries that answer, and the rules that flagged them, beside its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from wattention.analysis.blocks import CONFIDENCE, BlockModel, Estimate, Ratio, fit_blocks, holm
from wattention.analysis.cells import by_block
from wattention.analysis.drift import Flag, flags_of
from wattention.analysis.paired import BOOTSTRAP_BLOCKS, Array, bootstrap_interval, summarise, t_interval, t_p_value
from wattention.analysis.planning import (
    Design,
    Noise,
    Rule,
    blocks_to_differ,
    blocks_to_equal,
    detectable_effect,
)
from wattention.analysis.sequential import anytime_interval, anytime_p_value
from wattention.analysis.summary import MEASURES, Measure, measure_value
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import DECIDE_BY, DecideSpec, RunSpec

Outcome = Literal["less", "more", "equal", "undecided", "no numbers"]
"""Ours against theirs: a smaller or a larger number is proved, or equality within the margin, or neither is."""

Towards = Literal["difference", "equality"]

PAIR_MEASURES = (*DECIDE_BY.values(), "peak_allocated_bytes")
"""Measures that mechanisms are told apart by."""

PILOT_BLOCKS = 5
"""Below so many blocks a plan takes the noise from all mechanisms, because the pair's own is hardly known yet."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What it takes to decide a pair that is as far apart as it looks, with a power of 80 %.

    Args:
        more_blocks: blocks to add to this run, which is then judged as one that was looked at; 0 for a decided pair,
            None where 10,000 do not do.
        towards: what those blocks would prove.
        new_run_blocks: blocks of a new run of a fixed number, looked at once; None as above.
    """

    more_blocks: int | None
    towards: Towards
    new_run_blocks: int | None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One mechanism against another in one measure.

    Args:
        blocks: blocks in which both have a number.
        ratio: geometric mean of ours / theirs within blocks, with its 95 % interval under ``rule``.
        bootstrap: the studentised bootstrap's interval, or why there is none.
        pooled: the same ratio by the additive model with noise pooled over all mechanisms.
        p_holm: p-value after Holm's correction over the pairs of this measure.
        detectable: least ratio above 1 that so many blocks tell from 1 with a power of 80 %; None where none.
        plan: None where there is no noise to plan with.
        origin: of the numbers compared.
        why: why there are no numbers.
        rules: kinds of flags on the windows compared, with the number of blocks that carry them.
        without_flagged: the same pair without those blocks; None where nothing is flagged.
    """

    label: str
    reference: str
    measure: str
    rule: Rule
    outcome: Outcome
    blocks: int = 0
    ratio: Estimate | None = None
    bootstrap: Estimate | Absent | None = None
    pooled: Ratio | None = None
    p_holm: float | None = None
    detectable: float | None = None
    plan: Plan | None = None
    origin: str = ""
    why: str = ""
    rules: Mapping[str, int] | None = None
    without_flagged: Pair | None = None

    @property
    def decided(self) -> bool:
        """A difference or equality is proved."""
        return self.outcome in ("less", "more", "equal")

    @property
    def changes_without_flagged(self) -> bool:
        """The verdict is another one when flagged windows are left out."""
        return self.without_flagged is not None and self.without_flagged.outcome != self.outcome


@dataclass(frozen=True, kw_only=True)
class _Column:
    """One measure in all cells, and the flags on their windows."""

    measure: Measure
    values: Mapping[str, Mapping[int, Reading]]
    flags: Mapping[str, Mapping[int, tuple[Flag, ...]]]

    def numbers(self, label: str, *, clean: bool) -> dict[int, float]:
        """Positive numbers by block; ``clean`` leaves out flagged windows."""
        return {
            block: q.value
            for block, q in self.values.get(label, {}).items()
            if isinstance(q, Quantity) and q.value > 0 and not (clean and self.flags[label][block])
        }


def judging_rule(spec: RunSpec) -> Rule:
    """Return how verdicts of a run are reached: one that grew after a look, or will, is judged the stricter way."""
    return "one look" if spec.decide is None and spec.grown_from is None else "every block"


def compare_pairs(
    spec: RunSpec, records: Sequence[CellRecord], *, keys: Sequence[str] | None = None, planning: bool = True
) -> dict[str, tuple[Pair, ...]]:
    """Judge the pairs of a run, by measure.

    Args:
        keys: measures; all of :data:`PAIR_MEASURES` that the records have where not given.
        planning: also say what could have been found, and how many blocks it would take; the slow part.
    """
    decide = spec.decide or DecideSpec()
    labels = [choice.label for choice in spec.mechanisms]
    if decide.pairs == "all":
        pairs = [(theirs, ours) for ours, theirs in combinations(labels, 2)]
    else:
        pairs = [(label, spec.reference) for label in labels if label != spec.reference]
    trained = by_block(records, "train")
    out: dict[str, tuple[Pair, ...]] = {}
    for key in keys if keys is not None else PAIR_MEASURES:
        column = _column(next(m for m in MEASURES if m.key == key), trained)
        if keys is None and not any(column.numbers(label, clean=False) for label in labels):
            continue
        rule = judging_rule(spec)
        kept = _judge(column, pairs, rule, decide.equal_within, clean=False, planning=planning)
        clean = _judge(column, pairs, rule, decide.equal_within, clean=True, planning=False)
        out[key] = tuple(_beside(column, pair, other) for pair, other in zip(kept, clean, strict=True))
    return out


def _column(measure: Measure, trained: Mapping[str, Mapping[int, CellRecord]]) -> _Column:
    phases = {
        label: {block: record.phases.get(measure.phase, Phase()) for block, record in sorted(blocks.items())}
        for label, blocks in trained.items()
    }
    return _Column(
        measure=measure,
        values={label: {b: measure_value(measure, p) for b, p in blocks.items()} for label, blocks in phases.items()},
        # a disturbance moves seconds and joules, neither bytes nor losses
        flags={
            label: {b: flags_of(p) if measure.unit[0] in "sJ" else () for b, p in blocks.items()}
            for label, blocks in phases.items()
        },
    )


def _judge(
    column: _Column, pairs: Sequence[tuple[str, str]], rule: Rule, margin: float, *, clean: bool, planning: bool
) -> list[Pair]:
    numbers = {label: column.numbers(label, clean=clean) for pair in pairs for label in pair}
    model = fit_blocks(numbers) if any(numbers.values()) else None
    shared = {pair: sorted(numbers[pair[0]].keys() & numbers[pair[1]].keys()) for pair in pairs}
    log_ratios = {
        (a, b): np.log([numbers[a][block] / numbers[b][block] for block in blocks])
        for (a, b), blocks in shared.items()
        if blocks
    }
    # a pair without numbers yet may have some at the next look: there it counts from the beginning
    family = [pair for pair in pairs if pair in log_ratios or rule == "every block"]
    p_value = t_p_value if rule == "one look" else anytime_p_value
    p_values = [float(p_value(log_ratios[pair])) if pair in log_ratios else 1.0 for pair in family]
    adjusted = dict(zip(family, holm(p_values), strict=True))
    design = Design(rule=rule, comparisons=len(family) or 1)
    out = []
    for label, reference in pairs:
        bare = Pair(label=label, reference=reference, measure=column.measure.key, rule=rule, outcome="no numbers")
        if (label, reference) not in log_ratios:
            out.append(replace(bare, why=_why(column, label, reference, clean=clean)))
            continue
        judged = _judge_pair(
            replace(bare, origin=_origin(column, label)),
            log_ratios[label, reference],
            adjusted[label, reference],
            design,
            math.log1p(margin),
            exact=not column.measure.noisy,
        )
        judged = replace(judged, pooled=_pooled(model, label, reference))
        if planning:
            judged = _with_plan(judged, log_ratios[label, reference], model, design, math.log1p(margin))
        out.append(judged)
    return out


def _judge_pair(bare: Pair, d: Array, p_holm: float, design: Design, margin: float, *, exact: bool) -> Pair:
    mean, sd, blocks = summarise(d)
    one_look = design.rule == "one look"
    interval = t_interval if one_look else anytime_interval
    low, high = interval(d)
    strict_low, strict_high = interval(d, confidence=1 - design.alpha)
    resampled = bootstrap_interval(d)
    outcome: Outcome = "undecided"
    if (exact and sd == 0) or (exact and blocks == 1):  # counted, not sampled: there is no noise to reckon with
        outcome = "equal" if abs(mean) < margin else "less" if mean < 0 else "more"
        p_holm = 1.0 if outcome == "equal" else 0.0
    elif p_holm < 1 - CONFIDENCE:
        outcome = "less" if mean < 0 else "more"
    elif strict_low > -margin and strict_high < margin:
        outcome = "equal"
    return replace(
        bare,
        outcome=outcome,
        blocks=blocks,
        ratio=_estimate(mean, low, high),
        bootstrap=(
            Absent(f"{blocks} blocks, and a bootstrap takes {BOOTSTRAP_BLOCKS}")
            if resampled is None
            else _estimate(mean, *resampled)
        ),
        p_holm=p_holm if blocks > 1 or exact else None,
    )


def _estimate(mean: ArrayLike, low: ArrayLike, high: ArrayLike) -> Estimate:
    ends = [float(np.exp(x)) if np.isfinite(x) else None for x in (low, high)]
    return Estimate(value=float(np.exp(mean)), low=ends[0], high=ends[1])


def _with_plan(pair: Pair, d: Array, model: BlockModel | None, design: Design, margin: float) -> Pair:
    """Add what the blocks there are could have found, and how many it would take."""
    noise = _noise(d, model)
    if noise is None:
        return pair
    mean, _, blocks = summarise(d)
    detectable = detectable_effect(noise, blocks, design)
    added, towards = _cheapest(float(mean), noise, replace(design, rule="every block"), margin)
    fresh, _ = _cheapest(float(mean), noise, replace(design, rule="one look"), margin)
    # blocks still missing are at least one, because those there are did not decide
    more = 0 if pair.decided else None if added is None else max(1, added - blocks)
    plan = Plan(more_blocks=more, towards=towards, new_run_blocks=fresh)
    return replace(pair, detectable=math.exp(detectable) if math.isfinite(detectable) else None, plan=plan)


def _cheapest(effect: float, noise: Noise, design: Design, margin: float) -> tuple[int | None, Towards]:
    """The least number of blocks that decide, and what they prove."""
    differ, equal = blocks_to_differ(effect, noise, design), blocks_to_equal(effect, noise, design, margin=margin)
    if equal is not None and (differ is None or equal < differ):
        return equal, "equality"
    return differ, "difference"


def _noise(d: Array, model: BlockModel | None) -> Noise | None:
    """The pair's own noise; while that rests on few blocks, the noise of all mechanisms where it rests on more."""
    _, sd, blocks = summarise(d)
    pooled = 0 if model is None else model.degrees_of_freedom
    if model is not None and blocks < PILOT_BLOCKS and pooled > blocks - 1:
        return Noise(sd=model.noise_sd * 2**0.5, freedom=pooled)
    return Noise(sd=float(sd), freedom=blocks - 1) if blocks > 1 else None


def _pooled(model: BlockModel | None, label: str, reference: str) -> Ratio | None:
    if model is None or label not in model.labels or reference not in model.labels:
        return None
    return model.ratios_to(reference)[label]


def _beside(column: _Column, pair: Pair, clean: Pair) -> Pair:
    """Set the pair without its flagged blocks beside it, where some are flagged."""
    rules: dict[str, int] = {}
    ours, theirs = (column.flags.get(label, {}) for label in (pair.label, pair.reference))
    for block in ours.keys() & theirs.keys():
        for kind in {flag["kind"] for flag in (*ours[block], *theirs[block])}:
            rules[kind] = rules.get(kind, 0) + 1
    if not rules or pair.outcome == "no numbers":
        return pair
    return replace(pair, rules=dict(sorted(rules.items())), without_flagged=clean)


def _why(column: _Column, label: str, reference: str, *, clean: bool) -> str:
    if clean and all(column.numbers(one, clean=False) for one in (label, reference)):
        return "no block is left without a flagged window"
    for one in (label, reference):
        readings = list(column.values.get(one, {}).values())
        if not readings:
            return f"no training cell of {one} finished"
        if not any(isinstance(q, Quantity) for q in readings):
            return f"{one}: {next(q.reason for q in readings if isinstance(q, Absent))}"
        if not column.numbers(one, clean=False):
            return f"{one}: a number that is not positive has no ratio"
    return f"{label} and {reference} finished in no block together"


def _origin(column: _Column, label: str) -> str:
    return next(q.origin for q in column.values[label].values() if isinstance(q, Quantity))
