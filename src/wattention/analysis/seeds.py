"""Two spreads told apart: over seeds, and over reruns of one seed. A one-way random-effects analysis of variance::

    y[seed, rerun] = mu + seed effect + rerun noise      variances  s2_seed, s2_rerun

    s2_rerun = MSW                      N (K - 1) degrees of freedom
    s2_seed  = (MSB - MSW) / K          negative values become 0

for N seeds with K runs each. The interval of s2_rerun is exact (chi-square); that of s2_seed is Williams's, whose
coverage is close to, and not far below, its nominal one (Williams 1962, "A confidence interval for variance
components", Biometrika 49; Searle, Casella and McCulloch 1992, chapter 3). Quality differs between seeds; on a CPU it
does not between reruns, bit for bit, and a mechanism for which it does is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from scipy.special import chdtri, fdtri

from wattention.analysis.blocks import CONFIDENCE
from wattention.analysis.cells import by_block
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class Components:
    """Standard deviations with their intervals at :data:`CONFIDENCE`: between groups, and within them."""

    mean: float
    between: tuple[float, float, float]
    within: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """One quantity of one mechanism: its mean, and its standard deviation over seeds and over reruns of a seed."""

    mean: Reading
    over_seeds: Reading
    over_reruns: Reading


@dataclass(frozen=True, kw_only=True)
class SeedSummary:
    """What seeds and reruns do to one mechanism.

    Args:
        loss: held-out loss after the fixed tokens.
        step_s: time of a training step.
        repeats: whether reruns of a seed gave the same losses bit for bit; None without reruns.
        difference: for one that did not repeat, where the first difference is.
    """

    loss: Spread
    step_s: Spread
    repeats: bool | None
    difference: str = ""


def variance_components(groups: Sequence[Sequence[float]]) -> Components:
    """Return the components of a balanced design: two groups or more, of the same two observations or more."""
    N, K = len(groups), len(groups[0])
    assert N >= 2
    assert K >= 2
    assert all(len(group) == K for group in groups)
    means = [fmean(group) for group in groups]
    mean = fmean(means)
    ssb = K * sum((m - mean) ** 2 for m in means)
    ssw = sum((y - m) ** 2 for group, m in zip(groups, means, strict=True) for y in group)
    dfb, dfw = N - 1, N * (K - 1)
    msb, msw = ssb / dfb, ssw / dfw
    tail = (1 - CONFIDENCE) / 2
    within = (msw, ssw / chdtri(dfw, tail), ssw / chdtri(dfw, 1 - tail))  # chdtri takes the upper tail
    between = (
        (msb - msw) / K,
        (ssb - dfb * msw * fdtri(dfb, dfw, 1 - tail)) / (K * chdtri(dfb, tail)),
        (ssb - dfb * msw * fdtri(dfb, dfw, tail)) / (K * chdtri(dfb, 1 - tail)),
    )
    return Components(mean=mean, between=_roots(between), within=_roots(within))


def _roots(variances: tuple[float, float, float]) -> tuple[float, float, float]:
    value, low, high = (float(max(0.0, v)) ** 0.5 for v in variances)
    return value, low, high


def summarise_seeds(spec: RunSpec, records: Sequence[CellRecord]) -> dict[str, SeedSummary]:
    """Return the spreads of every mechanism that trained; empty for a run without reruns."""
    if spec.reruns < 2:
        return {}
    out: dict[str, SeedSummary] = {}
    for label, blocks in by_block(records, "train").items():
        seeds: dict[int, list[CellRecord]] = {}
        for block in sorted(blocks):
            seeds.setdefault(spec.seed_of(block), []).append(blocks[block])
        difference = _difference(seeds)
        out[label] = SeedSummary(
            loss=_spread([[_loss(record) for record in group] for group in seeds.values()], spec.reruns),
            step_s=_spread([[_step_s(record) for record in group] for group in seeds.values()], spec.reruns),
            repeats=None if all(len(group) < 2 for group in seeds.values()) else not difference,
            difference=difference,
        )
    return out


def _loss(record: CellRecord) -> Reading:
    readings = record.phases.get("evaluate", Phase()).readings
    found = readings.get("heldout_bits_per_byte") or readings.get("heldout_nats_per_token")
    return found or Absent("the evaluate phase recorded no held-out loss")


def _step_s(record: CellRecord) -> Reading:
    readings = record.phases.get("train", Phase()).readings
    time, steps = readings.get("time_s"), readings.get("steps")
    if not isinstance(time, Quantity) or not isinstance(steps, Quantity):
        return time if isinstance(time, Absent) else Absent("the train phase recorded no time_s per step")
    return Quantity(value=time.value / steps.value, unit="s", origin=time.origin, source=time.source)


def _spread(groups: Sequence[Sequence[Reading]], reruns: int) -> Spread:
    readings = list(chain.from_iterable(groups))
    numbers = [q for q in readings if isinstance(q, Quantity)]
    if len(numbers) < len(readings):
        missing = next(q for q in readings if isinstance(q, Absent))
        return Spread(mean=missing, over_seeds=missing, over_reruns=missing)
    first = numbers[0]
    mean = Quantity(value=fmean(q.value for q in numbers), unit=first.unit, origin=first.origin, source=first.source)
    whole = [[q.value for q in group if isinstance(q, Quantity)] for group in groups if len(group) == reruns]
    if len(whole) < 2:
        reason = Absent(f"{len(whole)} seeds have all of their {reruns} runs; two are needed")
        return Spread(mean=mean, over_seeds=reason, over_reruns=reason)
    components = variance_components(whole)
    return Spread(
        mean=mean,
        over_seeds=_sd(components.between, first, f"standard deviation over {len(whole)} seeds, reruns' share removed"),
        over_reruns=_sd(
            components.within, first, f"standard deviation over {reruns} runs of a seed, {len(whole)} seeds"
        ),
    )


def _sd(values: tuple[float, float, float], like: Quantity, source: str) -> Quantity:
    value, low, high = values
    return Quantity(value=value, unit=like.unit, origin=like.origin, source=source, low=low, high=high)


def _difference(seeds: Mapping[int, Sequence[CellRecord]]) -> str:
    """Say where reruns of a seed first differ in a loss; empty where they do not."""
    for seed, group in seeds.items():
        first = group[0]
        for other in group[1:]:
            mine, theirs = (r.phases.get("train", Phase()).samples.get("loss_nats", ()) for r in (first, other))
            for step, (a, b) in enumerate(zip(mine, theirs, strict=False)):
                if a != b:
                    return f"seed {seed}: training losses differ from step {step} on, by {abs(a - b):.2g} nats there"
            one, two = _loss(first), _loss(other)
            if isinstance(one, Quantity) and isinstance(two, Quantity) and one.value != two.value:
                return f"seed {seed}: held-out losses differ by {abs(one.value - two.value):.2g} {one.unit}"
    return ""
