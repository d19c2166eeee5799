"""What the searches for learning rates found and cost, one a mechanism, each with the same budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattention.core.quantities import Absent, Quantity, Reading, counted
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class SearchSummary:
    """One mechanism's search.

    Args:
        chosen: the rate with the lowest validation loss.
        at_edge: the chosen rate is the smallest or the largest of three or more tried, so a better one may lie beyond.
        validation: loss in nats per target by rate; absent where training diverged.
        tokens, time_s, energy_j: what the whole search trained on and cost; evaluation not included.
    """

    chosen: Reading
    at_edge: bool
    validation: Mapping[float, Reading]
    tokens: Reading
    time_s: Reading
    energy_j: Reading


def summarise_searches(spec: RunSpec, records: Sequence[CellRecord]) -> dict[str, SearchSummary]:
    """Return the search of every mechanism that made one; empty for a run without."""
    if spec.tune is None:
        return {}
    rates = spec.tune.learning_rates
    out: dict[str, SearchSummary] = {}
    for record in records:
        if record.key.kind == "tune" and record.key.mechanism not in out and record.phases:
            out[record.key.mechanism] = _summary(record, rates)
    return out


def _summary(record: CellRecord, rates: Sequence[float]) -> SearchSummary:
    chosen = record.facts.get("chosen_learning_rate")
    rate: Reading = Absent(record.detail or "no rate was chosen")
    if isinstance(chosen, float):
        rate = counted(chosen, "1", "the rate with the lowest validation loss of those tried")
    train, energy = record.phases.get("train", Phase()).readings, record.phases.get("energy", Phase()).readings
    return SearchSummary(
        chosen=rate,
        at_edge=len(rates) > 2 and chosen in (min(rates), max(rates)),
        validation={r: _of(record.phases.get(f"rate {r:g}", Phase()), "validation_nats_per_token") for r in rates},
        tokens=train.get("tokens", Absent("not recorded")),
        time_s=train.get("time_s", Absent("not recorded")),
        energy_j=_joules(train.get("time_s"), energy),
    )


def _of(phase: Phase, name: str) -> Reading:
    return phase.readings.get(name, Absent("not tried"))


def _joules(seconds: Reading | None, energy: Mapping[str, Reading]) -> Reading:
    """Return the search's seconds times the mean power of its energy window (the search itself where it is long)."""
    joules, time = energy.get("energy_j"), energy.get("time_s")
    if not isinstance(joules, Quantity):
        return joules or Absent("no energy was measured")
    if not isinstance(seconds, Quantity) or not isinstance(time, Quantity) or time.value <= 0:
        return Absent("the search was not timed")
    share = seconds.value / time.value
    source = f"seconds x mean power of training; {joules.source}"
    return joules.mapped(lambda value: value * share, unit="J", source=source)
