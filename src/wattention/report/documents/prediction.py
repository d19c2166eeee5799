"""Predictions as a document: the points side by side, then where time, traffic, memory and energy of each go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.analysis.predict import Costs, Prediction
from wattention.core.operators import MEMORY_KINDS
from wattention.core.quantities import Absent, Quantity, Reading, predicted
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import format_value

_POINTS = (
    Column(key="mechanism", heading="mechanism", help="attention mechanism", numeric=False),
    Column(key="step", heading="step", help="seconds of one training step"),
    Column(key="tokens_per_s", heading="token/s", help="trained tokens a second"),
    Column(key="attention", heading="attention", help="seconds of the attention layers in that step"),
    Column(key="bound_by", heading="bound by", help="what most of the time is bound by", numeric=False),
    Column(key="flop", heading="FLOP", help="products of a step, masked and recomputed ones included"),
    Column(key="peak", heading="peak", help="live tensors at the highest point of a step"),
    Column(key="fits", heading="fits", help="whether the peak fits the device", numeric=False),
    Column(key="batch", heading="max batch", help="largest batch that fits", numeric=False),
    Column(key="energy", heading="J/token", help="joules of a trained token"),
)
_INFERENCE = (
    Column(key="mechanism", heading="mechanism", help="attention mechanism", numeric=False),
    Column(key="prefill", heading="prefill", help="seconds of the prompt"),
    Column(key="decode", heading="decode", help="seconds of the next token of every sequence"),
    Column(key="per_token", heading="J/decoded token", help="joules of a decoded token"),
    Column(key="bound_by", heading="decode bound by", help="what most of a decoding step is bound by", numeric=False),
    Column(key="cache", heading="cache", help="bytes kept for decoding at this length, all sequences"),
)
_TRAFFIC = (
    Column(key="mechanism", heading="mechanism", help="attention mechanism", numeric=False),
    Column(key="boundary", heading="between", help="fast level and the one that serves it", numeric=False),
    Column(key="moved", heading="moved", help="bytes of a training step, each operator by itself"),
    Column(key="bound", heading="at least", help="sum of the operators' own lower bounds"),
    Column(key="attention", heading="attention", help="bytes of the attention layers"),
    Column(key="attention_bound", heading="at least", help="lower bounds of their operators"),
)
_MEMORY = (
    Column(key="mechanism", heading="mechanism", help="attention mechanism", numeric=False),
    *(Column(key=kind, heading=kind, help=f"bytes of {kind} at the peak") for kind in MEMORY_KINDS),
    Column(key="peak", heading="peak", help="their sum"),
    Column(key="phase", heading="at", help="where in the step", numeric=False),
)
_ENERGY = (
    Column(key="mechanism", heading="mechanism", help="attention mechanism", numeric=False),
    Column(key="idle", heading="idle", help="idle power x time"),
    Column(key="flop", heading="FLOP", help="operations x energy of one"),
    Column(key="bytes", heading="bytes", help="bytes x energy of one, all levels known"),
    Column(key="total", heading="J/step", help="their sum"),
    Column(key="carbon", heading="CO2e/token", help="CO2 equivalent of a trained token"),
)
_RUN = (
    Column(key="mechanism", heading="mechanism", help="attention mechanism", numeric=False),
    Column(key="tokens", heading="tokens", help="trained tokens of the run"),
    Column(key="time", heading="time", help="of the whole run on one device"),
    Column(key="energy", heading="energy", help="of the whole run"),
    Column(key="carbon", heading="CO2e", help="of the whole run"),
)


def prediction_document(named: Sequence[tuple[str, Prediction]], refused: Mapping[str, str] | None = None) -> Document:
    """Arrange predictions of one model on one device, each under its label; ``refused``: what cannot run there, why."""
    first = named[0][1]
    query = first.query
    ranked = sorted(named, key=lambda one: _seconds(one[1].train))
    best, rest = ranked[0], ranked[1:]
    answer = f"{best[0]} takes {format_value(_seconds(best[1].train), 's')} a step"
    if rest:
        answer += f", {rest[-1][0]} {_seconds(rest[-1][1].train) / _seconds(best[1].train):.2f} times as long"
    left_out = [f"left out, for it cannot run there: {label} ({why})" for label, why in (refused or {}).items()]
    marks = (*left_out, *dict.fromkeys(mark for _, one in named for mark in one.marks))
    sections = [
        Section(title="Training step", table=_table(_POINTS, [_point(*one) for one in named]), notes=marks),
        Section(title="Prompt and next token", table=_table(_INFERENCE, [_inference(*one) for one in named])),
        Section(title="Memory at the peak", table=_table(_MEMORY, [_memory(*one) for one in named])),
        Section(
            title="Data movement of a training step",
            table=_table(_TRAFFIC, [row for one in named for row in _traffic(*one)]),
        ),
        Section(
            title="Energy of a training step",
            table=_table(_ENERGY, [_energy(*one) for one in named]),
            notes=_missing(named),
        ),
    ]
    if first.run is not None:
        sections.append(Section(title="Training run", table=_table(_RUN, [_run(*one) for one in named])))
    return Document(
        title=f"{first.device}: {query.model.layers} layers, width {query.model.width}, {query.model.heads} heads, "
        f"{query.tokens} tokens, batch {query.batch}, {query.precision}",
        answer=answer,
        sections=tuple(sections),
    )


def _table(columns: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    return Table(columns=columns, rows=tuple(rows))


def _seconds(costs: Costs) -> float:
    assert isinstance(costs.time, Quantity)
    return costs.time.value


def _point(name: str, one: Prediction) -> tuple[Cell, ...]:
    memory = one.memory
    fits = "?" if memory.fits is None else ("yes" if memory.fits else "no")
    batch = "?" if memory.largest_batch is None else str(memory.largest_batch)
    readings: tuple[str | Reading, ...] = (
        name, one.train.time, one.train.tokens_per_s, one.train.attention_time, one.train.bound_by,
        one.train.hardware_flop, memory.peak, fits, batch, one.train.energy_per_token,
    )  # fmt: skip
    return tuple(Cell(content=reading) for reading in readings)


def _inference(name: str, one: Prediction) -> tuple[Cell, ...]:
    decode = one.decode
    readings = (name, one.prefill.time, decode.time, decode.energy_per_token, decode.bound_by, one.cache)
    return tuple(Cell(content=reading) for reading in readings)


def _memory(name: str, one: Prediction) -> tuple[Cell, ...]:
    parts = (one.memory.parts[kind] for kind in MEMORY_KINDS)
    return tuple(Cell(content=c) for c in (name, *parts, one.memory.peak, one.memory.phase))


def _traffic(name: str, one: Prediction) -> list[tuple[Cell, ...]]:
    return [
        tuple(
            Cell(content=c)
            for c in (
                name,
                f"{level.inner} - {level.outer}",
                level.moved,
                level.bound,
                level.attention_moved,
                level.attention_bound,
            )
        )
        for level in one.train.traffic
    ]


def _energy(name: str, one: Prediction) -> tuple[Cell, ...]:
    energy = one.train.energy
    known = [reading.value for reading in energy.levels.values() if isinstance(reading, Quantity)]
    moved: Reading = (
        predicted(sum(known), "J", "sum over levels") if known else Absent("no level has an energy per byte")
    )
    return tuple(
        Cell(content=c) for c in (name, energy.idle, energy.flop, moved, energy.total, one.train.carbon_per_token)
    )


def _run(name: str, one: Prediction) -> tuple[Cell, ...]:
    assert one.run is not None
    tokens = predicted(one.run.tokens, "token", "asked for")
    return tuple(Cell(content=c) for c in (name, tokens, one.run.time, one.run.energy, one.run.carbon))


def _missing(named: Sequence[tuple[str, Prediction]]) -> tuple[str, ...]:
    totals = [one.train.energy.total for _, one in named]
    reasons = dict.fromkeys(total.reason for total in totals if isinstance(total, Absent))
    return tuple(f"no energy: {reason}" for reason in reasons)
