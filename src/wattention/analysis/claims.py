"""Judge the claims of a published study by the records of a run: holds, does not hold, or undecided here.

A claim is made of comparisons "a lies below b by a measure". Noisy measures are compared within blocks (the model of
``blocks.py``), and all comparisons of one claim are one family under Holm's correction::

    holds           every comparison is decided in the claim's favour
    does not hold   some comparison is decided against it, or is an exact tie of two equal numbers
    undecided here  the rest: an interval that holds 1, one block only, or a measure this machine cannot measure

Counted, predicted and profiled numbers that do not vary (FLOPs, peak tensors) are compared as they are. An estimated
number decides nothing. The same claims are held against the study's own printed figures, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Literal

from wattention.analysis.blocks import CONFIDENCE, BlockModel, Estimate, fit_blocks, holm
from wattention.analysis.cells import by_block
from wattention.analysis.published_study import Claim, MeasureName, PublishedStudy
from wattention.analysis.summary import MEASURES, Measure, measure_value
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec

Verdict = Literal["holds", "does not hold", "undecided here"]
Pair = tuple[str, str]

_POWER = Measure(key="power_w", phase="energy", reading="energy_j", per="time_s", unit="W")


def measure_of(name: MeasureName, device: str) -> Measure:
    """The measure of this project that answers the same question as a study's."""
    if name == "power":
        return _POWER
    key = {
        "time": "step_s",
        "energy": "energy_per_token_j",
        "memory": "peak_allocated_bytes" if device.startswith("cuda") else "peak_tensor_bytes",
        "flop": "flop_per_token",
        "latency": "prefill_s",
        "loss": "heldout_bits_per_byte",
    }[name]
    return next(measure for measure in MEASURES if measure.key == key)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """One mechanism over another by one measure.

    Args:
        ratio: left over right, with its interval; None where there is no number.
        p_value: that they are equal; 0 and 1 for numbers that do not vary.
        why_not: why there is no number.
    """

    left: str
    right: str
    ratio: Estimate | None
    p_value: float = 1.0
    why_not: str = ""


class MeasuredValues:
    """All mechanisms of a run by one measure, ready to be compared in pairs."""

    def __init__(self, name: MeasureName, spec: RunSpec, records: Sequence[CellRecord]) -> None:
        self.measure = measure_of(name, spec.device)
        self._why_not: dict[str, str] = {}
        self.numbers: dict[str, dict[int, Quantity]] = {}
        trained = by_block(records, "train")
        for choice in spec.mechanisms:
            blocks = trained.get(choice.label, {})
            readings = {
                b: measure_value(self.measure, r.phases.get(self.measure.phase, Phase())) for b, r in blocks.items()
            }
            found = {b: q for b, q in readings.items() if isinstance(q, Quantity) and q.value > 0}
            if not found:
                reasons = [q.reason for q in readings.values() if not isinstance(q, Quantity)]
                self._why_not[choice.label] = reasons[0] if reasons else f"{choice.label} did not finish"
            elif any(q.origin == "estimated" for q in found.values()):
                self._why_not[choice.label] = "only an estimate can be had here, and an estimate decides nothing"
            self.numbers[choice.label] = found
        usable = {label: {b: q.value for b, q in blocks.items()} for label, blocks in self.numbers.items() if blocks}
        self._model: BlockModel | None = fit_blocks(usable) if usable else None

    def level(self, label: str) -> Quantity | None:
        """The geometric mean over blocks, with its interval; None where there is no number."""
        if self._model is None or label not in self._model.labels:
            return None
        mean, first = self._model.mean(label), next(iter(self.numbers[label].values()))
        low, high = (mean.low, mean.high) if self.measure.noisy else (None, None)
        ranges = [(q.low, q.high) for q in self.numbers[label].values() if q.low is not None and q.high is not None]
        if first.origin == "estimated" and ranges:  # the range of its model is wider than any noise between blocks
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        return Quantity(
            value=mean.value, unit=self.measure.unit, origin=first.origin, source=first.source, low=low, high=high
        )

    def compare(self, left: str, right: str) -> Contrast:
        """Compare two mechanisms."""
        for label in (left, right):
            if label in self._why_not or label not in self.numbers:
                reason = self._why_not.get(label, f"the run has no {label}")
                return Contrast(left=left, right=right, ratio=None, why_not=reason)
        assert self._model is not None
        estimate, p_value = self._model.contrast(left, right)
        if self.measure.noisy:
            return Contrast(left=left, right=right, ratio=estimate, p_value=p_value)
        exact = Estimate(value=estimate.value, low=estimate.value, high=estimate.value)
        return Contrast(left=left, right=right, ratio=exact, p_value=float(abs(estimate.value - 1) < 1e-9))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What became of one claim.

    Args:
        decisive: the comparison the verdict hangs on: the one decided against the claim, else the least clear one.
        others: for ``not_implied``, the same pair by the other measure.
        exact: the measure does not vary, so that the ratio has no interval and equal means equal.
        in_its_figures: whether the study's own printed figures say so, ties counted against it; None without figures.
        what_ran: by mechanism of the claim, what the study's code computed instead.
    """

    claim: Claim
    verdict: Verdict
    decisive: Contrast
    others: Contrast | None = None
    exact: bool = False
    in_its_figures: bool | None = None
    what_ran: Mapping[str, str]


def judge(study: PublishedStudy, spec: RunSpec, records: Sequence[CellRecord]) -> tuple[Judgement, ...]:
    """Judge all claims of a study by one run; mechanisms are told by their source, not by their label."""
    names = {choice.source: choice.label for choice in reversed(spec.mechanisms)}
    values = {
        name: MeasuredValues(name, spec, records)
        for claim in study.claims
        for name in (claim.measure, claim.other)
        if name is not None
    }
    return tuple(_judge(study, claim, values, names) for claim in study.claims)


def _judge(
    study: PublishedStudy, claim: Claim, values: Mapping[MeasureName, MeasuredValues], names: Mapping[str, str]
) -> Judgement:
    ours = values[claim.measure]
    others = values[claim.other] if claim.other is not None else None

    def label(name: str) -> str:
        return names.get(name, name)

    if others is None:
        verdict, decisive, second = *_judge_all(ours, [(label(a), label(b)) for a, b in _below(claim, study)]), None
    else:
        verdict, decisive, second = _judge_not_implied(ours, others, [label(name) for name in study.names])
    concerned = claim.mechanisms or study.names
    return Judgement(
        claim=claim,
        verdict=verdict,
        decisive=decisive,
        others=second,
        exact=not ours.measure.noisy,
        in_its_figures=_in_its_figures(claim, study),
        what_ran={name: ran for name in concerned if (ran := study.what_ran(name))},
    )


def _below(claim: Claim, study: PublishedStudy) -> list[Pair]:
    """The pairs (a, b) of which the claim says that a lies below b; an order needs only its neighbours."""
    named = claim.mechanisms
    rest = [name for name in study.names if name not in named]
    if claim.form == "less":
        return [(named[0], named[1])]
    if claim.form == "order":
        return [*pairwise(named), *((named[-1], other) for other in rest)]
    pairs = [(name, other) for name in named for other in rest]
    return pairs if claim.form == "lowest" else [(other, name) for name, other in pairs]


def _judge_all(values: MeasuredValues, pairs: Sequence[Pair]) -> tuple[Verdict, Contrast]:
    found = [values.compare(*pair) for pair in pairs]
    absent = [one for one in found if one.ratio is None]
    known = [one for one in found if one.ratio is not None]
    adjusted = holm([one.p_value for one in known])
    decided = [p < 1 - CONFIDENCE for p in adjusted]
    against = [
        one
        for one, sure in zip(known, decided, strict=True)
        if one.ratio and ((sure and one.ratio.value > 1) or (not values.measure.noisy and not sure))
    ]
    if against:
        return "does not hold", max(against, key=_ratio)
    if absent:
        return "undecided here", absent[0]
    unsure = [one for one, sure in zip(known, decided, strict=True) if not sure]
    return ("undecided here", max(unsure, key=_ratio)) if unsure else ("holds", max(known, key=_ratio))


def _ratio(comparison: Contrast) -> float:
    return comparison.ratio.value if comparison.ratio else 0.0


def _judge_not_implied(
    ours: MeasuredValues, others: MeasuredValues, labels: Sequence[str]
) -> tuple[Verdict, Contrast, Contrast | None]:
    """Look for a pair with less of one and more of the other; both are decided under one correction."""
    pairs = list(permutations(labels, 2))
    less, more = [ours.compare(*pair) for pair in pairs], [others.compare(*pair) for pair in pairs]
    absent = next((one for one in (*less, *more) if one.ratio is None), None)
    if absent is not None:
        return "undecided here", absent, None
    # each unordered pair is tested once by each measure
    once = [i for i, (a, b) in enumerate(pairs) if labels.index(a) < labels.index(b)]
    adjusted = holm([p for i in once for p in (less[i].p_value, more[i].p_value)])
    by_pair = {frozenset(pairs[i]): max(adjusted[2 * n : 2 * n + 2]) for n, i in enumerate(once)}
    crossed = [i for i in range(len(pairs)) if _ratio(less[i]) < 1 < _ratio(more[i])]
    sure = [i for i in crossed if by_pair[frozenset(pairs[i])] < 1 - CONFIDENCE]
    if sure:
        best = max(sure, key=lambda i: _ratio(more[i]))
        return "holds", less[best], more[best]
    # that no pair crosses cannot be proved by tests of differences: it stays open
    middle = max(crossed or range(len(pairs)), key=lambda i: _ratio(more[i]) / _ratio(less[i]))
    return "undecided here", less[middle], more[middle]


def _in_its_figures(claim: Claim, study: PublishedStudy) -> bool | None:
    """Whether the printed figures say what the claim says, ties counted against it; None where a figure is missing."""
    figure = study.figure(claim.measure)
    if figure is None:
        return None
    values = figure.values
    if claim.other is not None:
        other = study.figure(claim.other)
        if other is None:
            return None
        return any(values[a] < values[b] and other.values[a] > other.values[b] for a, b in permutations(values, 2))
    return all(values[a] < values[b] for a, b in _below(claim, study))
