"""Training loss against what it cost: the mean over blocks of every mechanism, by tokens, seconds and joules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from wattention.analysis.cells import by_block
from wattention.analysis.power import mean_power
from wattention.core.quantities import Quantity
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec

POINTS = 150
"""Most points of one curve; longer ones are averaged over equal stretches of steps."""


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """The training loss of one mechanism, the mean over its blocks.

    Args:
        loss_nats: per token, of the batch of that step.
        tokens: seen up to and with that step.
        time_s: since the first step, warm-up steps included; empty where the records do not tell.
        energy_j: ``time_s`` times the mean power of the energy window; empty where there is no power.
        power: that power.
    """

    loss_nats: tuple[float, ...]
    tokens: tuple[float, ...]
    time_s: tuple[float, ...]
    energy_j: tuple[float, ...]
    power: Quantity | None


def loss_curves(spec: RunSpec, records: Sequence[CellRecord]) -> dict[str, LossCurve]:
    """Return the curve of every mechanism that trained; steps beyond the shortest of its blocks are left out."""
    out: dict[str, LossCurve] = {}
    for label, blocks in by_block(records, "train").items():
        phases = [record.phases for record in blocks.values()]
        losses = [p["train"].samples.get("loss_nats", ()) if "train" in p else () for p in phases]
        if not losses or not all(losses):
            continue
        steps = min(map(len, losses))
        loss = _mean([series[:steps] for series in losses])
        clocks = [_clock(p.get("warmup", Phase()), p["train"], steps) for p in phases]
        time_s = _mean(clocks) if all(clocks) else ()
        power = mean_power(list(blocks.values()))
        tokens = tuple(float(spec.tokens_per_step * (step + 1)) for step in range(steps))
        out[label] = LossCurve(
            loss_nats=_thin(loss),
            tokens=_thin(tokens),
            time_s=_thin(time_s),
            energy_j=_thin(tuple(t * power.value for t in time_s)) if isinstance(power, Quantity) else (),
            power=power if isinstance(power, Quantity) else None,
        )
    return out


def _clock(warmup: Phase, train: Phase, steps: int) -> tuple[float, ...]:
    """Seconds since the first step at the end of each; equal steps where only their sum was measured."""
    first, total, counted = (
        p.readings.get(name) for p, name in ((warmup, "time_s"), (train, "time_s"), (train, "steps"))
    )
    if not isinstance(total, Quantity) or not isinstance(counted, Quantity):
        return ()
    measured = int(counted.value)
    warm = steps - measured
    if warm < 0 or (warm and not isinstance(first, Quantity)):
        return ()
    before = [first.value / warm] * warm if isinstance(first, Quantity) and warm else []
    own = train.samples.get("step_s", ())
    each = list(own) if len(own) == measured else [total.value / measured] * measured
    return tuple(accumulate(before + each))


def _mean(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(values) / len(values) for values in zip(*series, strict=True))


def _thin(values: Sequence[float]) -> tuple[float, ...]:
    """Average over equal stretches, so that a curve has at most :data:`POINTS` points."""
    stretch = -(-len(values) // POINTS) or 1
    parts = [values[start : start + stretch] for start in range(0, len(values), stretch)]
    return tuple(sum(part) / len(part) for part in parts)
