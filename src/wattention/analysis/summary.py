"""From raw records to what a reader compares: one summary a mechanism, with intervals, ratios, ties and crossovers.

Pure functions over records; nothing is dropped. Cells that failed give their reason instead of numbers, flagged
windows are counted in the notes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wattention.analysis.blocks import BlockModel, Ratio, fit_blocks
from wattention.analysis.carbon import carbon_of
from wattention.analysis.cells import by_block, by_seed
from wattention.analysis.crossover import Crossover
from wattention.analysis.drift import flags_of
from wattention.analysis.energy import GROSS, NET, TRAIN, Trained, energies, frugal, summarise
from wattention.analysis.equal_quality import EqualQuality, summarise_quality
from wattention.analysis.hosts import commonest_machine, machine_of
from wattention.analysis.lengths import LengthPoint, find_crossovers, measure_lengths
from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec

QUALITY_TOKENS = 2_000_000
"""Training tokens below which a held-out loss is still mostly about the first words learned, not the mechanism."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One column of the comparison: where its number is found in a training cell's record.

    Args:
        phase: the phase whose readings hold it.
        reading: name of the reading; ``per`` names another reading to divide by.
        lower_is_better: None where no direction is better.
        noisy: differs from block to block, so it gets an interval and ties; else blocks must agree and one is shown.
    """

    key: str
    phase: str
    reading: str
    per: str = ""
    unit: str
    lower_is_better: bool | None = True
    noisy: bool = True


MEASURES: tuple[Measure, ...] = (
    Measure(key="tokens_per_s", phase="train", reading="tokens", per="time_s", unit="token/s", lower_is_better=False),
    Measure(key="step_s", phase="train", reading="time_s", per="steps", unit="s"),
    Measure(key="peak_tensor_bytes", phase="memory", reading="peak_tensor_bytes", unit="byte", noisy=False),
    Measure(key="peak_rss_bytes", phase="train", reading="peak_rss_bytes", unit="byte"),
    Measure(key="peak_allocated_bytes", phase="train", reading="cuda_peak_allocated_bytes", unit="byte", noisy=False),
    Measure(key="flop_per_token", phase="train", reading="flop_per_token", unit="flop/token", noisy=False),
    Measure(key="cpu_s_per_step", phase="train", reading="cpu_s", per="steps", unit="s"),
    Measure(key="energy_per_token_j", phase="energy", reading="energy_j", per="tokens", unit="J/token"),
    Measure(key="prefill_s", phase="prefill", reading="time_s", per="prompts", unit="s"),
    Measure(key="decode_s_per_token", phase="decode", reading="time_s", per="tokens", unit="s/token"),
    Measure(
        key="cache_bytes_per_token", phase="decode", reading="cache_bytes_per_token", unit="byte/token", noisy=False
    ),
    Measure(key="heldout_bits_per_byte", phase="evaluate", reading="heldout_bits_per_byte", unit="bit/byte"),
    Measure(key="recall_accuracy", phase="evaluate", reading="recall_accuracy", unit="accuracy", lower_is_better=False),
)


@dataclass(frozen=True, kw_only=True)
class MechanismSummary:
    """All that is known of one mechanism in one run.

    Args:
        status: ``ok`` when at least one block trained; else the status of what stopped it.
        detail: why it stopped, in words; empty for ``ok``.
        failed_clauses: conformance clauses it failed.
        kernels: attention kernels that really ran in training.
        quantities: by measure key; absent ones say why.
        best: keys in which it is the best, or tied with the best.
        time_ratio: its time per step over the reference's; None for the reference itself or where one is missing.
        time_ratio_without_flagged: the same without cells whose training window is flagged as disturbed; None where
            no window is, or none is left.
    """

    label: str
    status: str
    detail: str = ""
    failed_clauses: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    quantities: Mapping[str, Reading] = field(default_factory=dict)
    best: frozenset[str] = frozenset()
    time_ratio: Ratio | None = None
    time_ratio_without_flagged: Ratio | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One run, summarised.

    Args:
        reference: the mechanism that ratios refer to, ``baseline`` where the run has it, else the first.
        lengths: by mechanism, by length.
        crossovers: by mechanism, then by ``(rival, "time" or "memory")``.
        notes: what a reader must know to read the numbers, in words.
        quality: what the run held equal; None where nobody summarised it.
    """

    spec: RunSpec
    reference: str
    mechanisms: tuple[MechanismSummary, ...]
    lengths: Mapping[str, Mapping[int, LengthPoint]]
    crossovers: Mapping[str, Mapping[tuple[str, str], Crossover]]
    notes: tuple[str, ...]
    quality: EqualQuality | None = None


def compare_records(spec: RunSpec, records: Sequence[CellRecord]) -> Comparison:
    """Summarise the records of one run."""
    labels = [choice.label for choice in spec.mechanisms]
    reference = spec.reference
    trained = by_block(records, "train")
    shown = _on_one_machine(trained)
    quantities: dict[str, dict[str, Reading]] = {label: {} for label in labels}
    best: dict[str, set[str]] = {label: set() for label in labels}
    ratios: dict[str, Ratio] = {}
    clean_ratios: dict[str, Ratio] = {}
    for measure in MEASURES:
        values = {label: _values(measure, trained.get(label, {})) for label in labels}
        model = _fit(spec, measure, values) if measure.noisy else None
        alike = {label: {b: q for b, q in values[label].items() if b in shown.get(label, {})} for label in labels}
        level = model if alike == values else _fit(spec, measure, alike) if measure.noisy else None
        for label in labels:
            quantities[label][measure.key] = _summarise(measure, label, alike[label], level)
        for label in _best(measure, {label: quantities[label][measure.key] for label in labels}, model):
            best[label].add(measure.key)
        if measure.key == "step_s" and model is not None and reference in model.labels:
            ratios = model.ratios_to(reference)
            clean_ratios = _without_flagged(spec, measure, values, trained, reference)
    cells = {label: trained.get(label, {}) for label in labels}
    for label, found in _propagated(spec, cells).items():
        quantities[label].update(found)
        best[label].discard(GROSS)
    for key, net in ((GROSS, False), (NET, True)):
        for label in frugal(energies(cells, TRAIN, net=net)):
            best[label].add(key)
    lengths = measure_lengths(records, labels)
    return Comparison(
        spec=spec,
        reference=reference,
        mechanisms=tuple(
            replace(
                _mechanism(label, records, quantities[label], frozenset(best[label]), ratios.get(label)),
                time_ratio_without_flagged=clean_ratios.get(label),
            )
            for label in labels
        ),
        lengths=lengths,
        crossovers=find_crossovers(records, lengths),
        notes=(*_notes(spec, records), *_changed_without_flagged(ratios, clean_ratios)),
        quality=summarise_quality(spec, records),
    )


def _propagated(spec: RunSpec, trained: Trained) -> dict[str, dict[str, Reading]]:
    """Energy gross and net with the whole uncertainty of its instruments, and the emissions it stands for."""
    gross, net = (summarise(energies(trained, TRAIN, net=net)) for net in (False, True))
    return {
        label: {
            GROSS: gross[label],
            NET: net[label],
            "carbon_per_token_kg": carbon_of(gross[label], spec.measure.carbon),
        }
        for label in trained
    }


def _on_one_machine(trained: Mapping[str, Mapping[int, CellRecord]]) -> Mapping[str, Mapping[int, CellRecord]]:
    """The cells whose seconds and joules may be averaged: those of the commonest kind of machine."""
    machine = commonest_machine(record for blocks in trained.values() for record in blocks.values())
    if machine is None:
        return trained
    return {label: {b: r for b, r in blocks.items() if machine_of(r) == machine} for label, blocks in trained.items()}


def _values(measure: Measure, by_block: Mapping[int, CellRecord]) -> dict[int, Reading]:
    return {
        block: measure_value(measure, record.phases.get(measure.phase, Phase())) for block, record in by_block.items()
    }


def measure_value(measure: Measure, phase: Phase) -> Reading:
    """Return what one phase says of a measure, or why it says nothing."""
    reading = phase.readings.get(measure.reading)
    if reading is None:
        return Absent(f"the {measure.phase} phase recorded no {measure.reading}")
    if isinstance(reading, Absent) or not measure.per:
        return reading
    divisor = phase.readings.get(measure.per)
    if divisor is None or isinstance(divisor, Absent):
        return divisor or Absent(f"the {measure.phase} phase recorded no {measure.per}")
    by = divisor.value
    return reading.mapped(
        lambda value: value / by,
        unit=measure.unit,
        # a count divided by a time is as good as the clock: the weaker origin of the two names the result
        origin=divisor.origin if reading.origin == "counted" else reading.origin,
        source=reading.source if measure.per != "time_s" else divisor.source,
    )


def _fit(spec: RunSpec, measure: Measure, values: Mapping[str, Mapping[int, Reading]]) -> BlockModel | None:
    numbers = {
        label: {b: q.value for b, q in by_block.items() if isinstance(q, Quantity) and q.value > 0}
        for label, by_block in values.items()
    }
    if measure.phase == "evaluate":  # quality is the seed's: reruns of a seed are no further evidence
        numbers = {label: by_seed(spec, by_block) for label, by_block in numbers.items()}
    return fit_blocks(numbers) if any(numbers.values()) else None


def _without_flagged(
    spec: RunSpec,
    measure: Measure,
    values: Mapping[str, Mapping[int, Reading]],
    trained: Mapping[str, Mapping[int, CellRecord]],
    reference: str,
) -> dict[str, Ratio]:
    """The ratios to the reference without cells whose window is flagged; none where no window is."""
    clean = {
        label: {b: q for b, q in ours.items() if not flags_of(trained[label][b].phases.get(measure.phase, Phase()))}
        for label, ours in values.items()
    }
    if clean == values:
        return {}
    model = _fit(spec, measure, clean)
    return {} if model is None or reference not in model.labels else model.ratios_to(reference)


def _changed_without_flagged(ratios: Mapping[str, Ratio], clean: Mapping[str, Ratio]) -> list[str]:
    """Say which verdicts about time rest on disturbed windows."""
    return [
        f"{label}: its time {'ties with' if ratios[label].tie else 'differs from'} the reference's; without disturbed "
        f"windows it {'ties' if other.tie else 'differs'}, at a ratio of {other.value:.3f}."
        for label, other in clean.items()
        if label in ratios and ratios[label].tie != other.tie
    ]


def _summarise(measure: Measure, label: str, by_block: Mapping[int, Reading], model: BlockModel | None) -> Reading:
    numbers = [q for q in by_block.values() if isinstance(q, Quantity)]
    if not numbers:
        absent = next((q for q in by_block.values() if isinstance(q, Absent)), None)
        return absent or Absent("no training cell of this mechanism finished")
    first = numbers[0]
    if model is None or label not in model.labels:
        middle = statistics.median(q.value for q in numbers)
        return Quantity(value=middle, unit=measure.unit, origin=first.origin, source=first.source)
    estimate = model.mean(label)
    low, high = estimate.low, estimate.high
    if first.origin == "estimated" and first.low is not None and first.high is not None:
        # the range of a stand-in model is far wider than the noise between blocks, and says more
        low = min(q.low for q in numbers if q.low is not None)
        high = max(q.high for q in numbers if q.high is not None)
    return Quantity(
        value=estimate.value, unit=measure.unit, origin=first.origin, source=first.source, low=low, high=high
    )


def _best(measure: Measure, readings: Mapping[str, Reading], model: BlockModel | None) -> list[str]:
    """The best of a column and those that tie with it; none where only one has a number or all are equal."""
    numbers = {label: q.value for label, q in readings.items() if isinstance(q, Quantity)}
    if measure.lower_is_better is None or len(numbers) < 2:
        return []
    pick: Callable[..., str] = min if measure.lower_is_better else max
    leader = pick(numbers, key=numbers.__getitem__)
    if model is None:
        tied = [label for label, value in numbers.items() if value == numbers[leader]]
    else:
        against = model.ratios_to(leader)
        tied = [label for label in numbers if label == leader or against[label].tie]
    return tied if len(tied) < len(numbers) else []


def _mechanism(
    label: str,
    records: Sequence[CellRecord],
    quantities: Mapping[str, Reading],
    best: frozenset[str],
    time_ratio: Ratio | None,
) -> MechanismSummary:
    ours = [record for record in records if record.key.mechanism == label]
    trained = [record for record in ours if record.key.kind == "train" and record.status == "ok"]
    failures = [record for record in ours if record.status != "ok" and record.key.kind != "lengths"]
    status, detail = "ok", ""
    if not trained:
        status = failures[0].status if failures else "not run"
        detail = failures[0].detail if failures else "no cell of this mechanism has run yet"
    kernels = dict.fromkeys(record.facts["kernel"] for record in trained if "kernel" in record.facts)
    failed = [clause for record in ours for clause in record.facts.get("failed_clauses", ())]
    return MechanismSummary(
        label=label,
        status=status,
        detail=detail,
        failed_clauses=tuple(dict.fromkeys(failed)),
        kernels=tuple(kernels),
        quantities=quantities,
        best=best,
        time_ratio=time_ratio,
    )


def _host_notes(spec: RunSpec, records: Sequence[CellRecord]) -> list[str]:
    """Say where the numbers come from: host, processor, torch, threads, allocator."""
    hosts: dict[str, str] = {}
    for record in records:
        host, packages = record.environment.get("host"), record.environment.get("packages", {})
        if host:
            words = f"host {host['hostname']}: {host['cpu']}, torch {packages.get('torch')}"
            hosts.setdefault(host["hostname"], f"{words}, {spec.threads} CPU threads, malloc setting '{spec.malloc}'.")
    if len(hosts) > 1:
        return [*hosts.values(), _several_hosts(records)]
    return list(hosts.values())


def _several_hosts(records: Sequence[CellRecord]) -> str:
    words = "Several hosts in one run: ratios are taken within blocks, each on one host, over all of them"
    trained = by_block(records, "train")
    machine = commonest_machine(record for blocks in trained.values() for record in blocks.values())
    if machine is None:
        return f"{words}; the hosts are alike, and their seconds and joules are averaged."
    return f"{words}; the hosts are unlike, and seconds, joules and bytes are those of one kind alone: {machine}."


def _notes(spec: RunSpec, records: Sequence[CellRecord]) -> tuple[str, ...]:
    notes = _host_notes(spec, records)
    if any(record.simulated for record in records):
        notes.append("Some records are SIMULATED: their readings come from a replay, not from this machine.")
    flagged = [
        (record, name, flag["kind"])
        for record in records
        for name, phase in record.phases.items()
        for flag in flags_of(phase)
    ]
    if flagged:
        kinds = ", ".join(sorted({kind for _, _, kind in flagged}))
        cells = len({record.key for record, _, _ in flagged})
        notes.append(f"{cells} of {len(records)} cells have disturbed windows ({kinds}); kept, not dropped.")
    refused = {record.key.mechanism for record in records if record.key.kind == "gate" and record.status != "ok"}
    notes += [
        f"{record.key}: {record.status.replace('_', ' ')}: {record.detail}"
        for record in records
        if record.status != "ok" and (record.key.kind == "gate" or record.key.mechanism not in refused)
    ]
    trained = spec.tokens_per_step * spec.training.steps
    if trained < QUALITY_TOKENS and spec.data.task == "text":
        notes.append(
            f"Held-out loss after only {trained} tokens of training says little about which mechanism learns best; "
            "raise --steps for that."
        )
    if spec.grown_from is not None:
        notes.append(
            f"Blocks were added after results could be seen ({spec.grown_from} at first, now {spec.blocks}): the "
            "tables' intervals and ties are those of one look; 'Which pairs are decided' allows for it."
        )
    if spec.blocks == 1:
        notes.append("One block: there is no spread, so no intervals, and every difference is printed as a tie.")
    return tuple(notes)
