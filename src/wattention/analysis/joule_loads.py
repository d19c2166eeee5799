"""The windows of a run whose joules are known, with the seconds, FLOPs and bytes each of them took.

Training: the energy window's joules and seconds; FLOPs from the record's closed form, masked and recomputed products
included. Lengths: one pass of a layer, where the records hold its joules and its FLOPs. Bytes are attention's alone
(:mod:`wattention.analysis.attention_bytes`): what the rest of the model moves is the same for every mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from wattention.analysis.attention_bytes import FastMemory, attention_bytes, find_fast_memory
from wattention.analysis.cells import by_block
from wattention.analysis.joules import Load
from wattention.core.quantities import Quantity, Reading
from wattention.core.records import CellRecord, Phase
from wattention.core.run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A mechanism some window of which lacks an amount, and which."""

    mechanism: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RunLoads:
    """What a run can tell about its joules.

    Args:
        kind: whether counters were read, or the joules are an estimate from seconds and CPU seconds.
        loads: windows with seconds, FLOPs and bytes; of an estimate with seconds and CPU seconds.
        left_out: mechanisms without any window here, and why.
        fast_memory: what bytes are counted against; None where they are not.
        simulated: some records are replays.
    """

    kind: Literal["measured", "estimated"]
    loads: tuple[Load, ...]
    left_out: Mapping[str, str]
    fast_memory: FastMemory | None
    simulated: bool


def run_loads(spec: RunSpec, records: Sequence[CellRecord]) -> RunLoads | None:
    """Return the loads of a run; None where no window has joules. Counters come before estimates."""
    fast = find_fast_memory(spec, records)
    found = [*_training(spec, records, fast), *_layers(spec, records, fast)]
    loads = tuple(one for one in found if isinstance(one, Load))
    placed = {load.mechanism for load in loads}
    kind: Literal["measured", "estimated"] = "measured" if found else "estimated"
    loads = loads if found else tuple(_estimated(records))
    if not found and not loads:
        return None
    return RunLoads(
        kind=kind,
        loads=loads,
        left_out={x.mechanism: x.reason for x in found if isinstance(x, LeftOut) and x.mechanism not in placed},
        fast_memory=fast if found else None,
        simulated=any(record.simulated for record in records),
    )


def _estimated(records: Sequence[CellRecord]) -> Iterator[Load]:
    """Training windows whose joules a model made of seconds and CPU seconds."""
    for label, blocks in by_block(records, "train").items():
        for block, record in blocks.items():
            train = record.phases.get("train", Phase()).readings
            energy = record.phases.get("energy", Phase()).readings.get("energy_j")
            amounts = {"time": _value(train.get("time_s")), "cpu": _value(train.get("cpu_s"))}
            if _joules(energy, "estimated") and all(amounts.values()):
                yield Load(mechanism=label, group="train", block=block, energy_j=_value(energy), amounts=amounts)


def _training(spec: RunSpec, records: Sequence[CellRecord], fast: FastMemory | None) -> Iterator[Load | LeftOut]:
    """The energy windows of training."""
    length = spec.training.tokens or spec.model.context
    for label, blocks in by_block(records, "train").items():
        moved = attention_bytes(spec, next(iter(blocks.values())), length, spec.training.batch, fast)
        for block, record in blocks.items():
            window, train = record.phases.get("energy", Phase()).readings, record.phases.get("train", Phase()).readings
            if not _joules(window.get("energy_j"), "measured"):
                continue
            tokens = _value(window.get("tokens"))
            yield _load(
                label,
                "train",
                block,
                window["energy_j"],
                time_s=_value(window.get("time_s")),
                flop=_value(train.get("hardware_flop_per_token")) * tokens,
                moved=moved,
                times=tokens / (spec.training.batch * length) * spec.model.layers,
            )


def _layers(spec: RunSpec, records: Sequence[CellRecord], fast: FastMemory | None) -> Iterator[Load | LeftOut]:
    """One forward and backward pass of a layer at each length."""
    trained = by_block(records, "train")
    for label, blocks in by_block(records, "lengths").items():
        first = next(iter(trained.get(label, {}).values()), None)
        for block, record in blocks.items():
            for name, phase in record.phases.items():
                energy = phase.readings.get("layer_energy_j")
                if not (name.isdigit() and energy is not None and _joules(energy, "measured")):
                    continue
                yield _load(
                    label,
                    f"T={name}",
                    block,
                    energy,
                    time_s=_value(phase.readings.get("layer_energy_time_s", phase.readings.get("layer_time_s"))),
                    flop=_value(phase.readings.get("layer_hardware_flop")),
                    moved=attention_bytes(spec, first, int(name), 1, fast),
                )


def _load(
    mechanism: str,
    group: str,
    block: int,
    energy: Reading,
    *,
    time_s: float,
    flop: float,
    moved: float | str,
    times: float = 1.0,
) -> Load | LeftOut:
    """The load of one window, or what it lacks; it moves ``moved`` bytes so many ``times``."""
    missing = [name for name, value in (("seconds", time_s), ("FLOPs", flop), ("tokens", times)) if not value]
    if isinstance(moved, str) or missing:
        reason = moved if isinstance(moved, str) else f"the records hold no {' and no '.join(missing)}"
        return LeftOut(mechanism=mechanism, reason=reason)
    amounts = {"time": time_s, "flop": flop, "bytes": moved * times}
    return Load(mechanism=mechanism, group=group, block=block, energy_j=_value(energy), amounts=amounts)


def _joules(reading: Reading | None, origin: str) -> bool:
    return isinstance(reading, Quantity) and reading.origin == origin and reading.value > 0


def _value(reading: Reading | None) -> float:
    return reading.value if isinstance(reading, Quantity) else 0.0
