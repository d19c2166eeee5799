"""Gather what advice needs, mechanism by mechanism: predictions here and at other lengths and batches, measurements.

A mechanism that cannot run on the device, or a length it does not take, is an answer with its reason, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wattention.analysis.advice_points import Attention, Candidate, Objective, Point, Wish, costs_of
from wattention.analysis.advise import Advice, advise
from wattention.analysis.data_movement import WORD_BYTES
from wattention.analysis.measured_points import measured_costs, why_no_match
from wattention.analysis.predict import Prediction, PredictionQuery, Workload
from wattention.core.errors import UserError
from wattention.core.quantities import Quantity
from wattention.core.run_spec import STUDY_MECHANISMS
from wattention.core.shapes import AttentionShape
from wattention.hardware.catalog import load_profile
from wattention.iocomplexity.planning.levels import Threshold, thresholds
from wattention.study.prediction import predict, why_unavailable
from wattention.study.store import StoredRun

if TYPE_CHECKING:
    from wattention.mechanisms.base import Mechanism, MechanismConfig

LENGTH_FACTORS = (0.25, 2)
"""Lengths that are tried beside the one asked for, as multiples of it; each is a trace of every mechanism."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question for advice.

    Args:
        point: the model, the shape and the device; its ``mechanism`` is of no account.
        mechanisms: names or files of the mechanisms to choose from.
        runs: measured runs to take matching numbers from.
        lengths, batches: further ones to predict, for crossovers and for what would change the answer.
    """

    point: PredictionQuery
    wish: Wish
    mechanisms: tuple[str, ...] = STUDY_MECHANISMS
    runs: tuple[StoredRun, ...] = ()
    lengths: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The advice, with the device's own thresholds and what became of the runs."""

    question: Question
    device: str
    advice: Advice
    thresholds: tuple[Threshold, ...]
    unused_runs: Mapping[str, str]


def answer(question: Question) -> Answer:
    """Predict every mechanism at the point, and advise.

    Raises:
        UserError: an unknown device or mechanism, or a model or a length that cannot exist.
    """
    point, profile = question.point, load_profile(question.point.hardware)
    limit = point.memory_bytes if point.memory_bytes is not None else profile.main_memory.capacity_bytes
    wish = replace(question.wish, memory_bytes=float(limit))
    unused = {str(run.folder): why_no_match(run.spec, run.records, point, profile) for run in question.runs}
    usable = [run for run in question.runs if not unused[str(run.folder)]]
    candidates = [_candidate(name, question, wish, usable) for name in question.mechanisms]
    return Answer(
        question=replace(question, wish=wish),
        device=profile.title,
        advice=advise(candidates, wish),
        thresholds=thresholds(profile, point.hardware, word_bytes=WORD_BYTES[point.precision]),
        unused_runs={folder: why for folder, why in unused.items() if why},
    )


def _candidate(name: str, question: Question, wish: Wish, runs: Sequence[StoredRun]) -> Candidate:
    from wattention.mechanisms.base import MECHANISMS

    mechanism = MECHANISMS.load(name)
    query = replace(question.point, mechanism=name)
    shape = AttentionShape(batch=query.batch, tokens=query.tokens, width=query.model.width, heads=query.model.heads)
    refused = why_unavailable(query)
    attention = _attention(mechanism, shape, mechanism.configure(query.settings))
    if refused is not None:
        return Candidate(mechanism=name, attention=attention, refused=f"cannot run there: {refused}")
    here = predict(query)
    measured: dict[Objective, Quantity] = {}
    for run in runs:
        measured = measured or measured_costs(run.spec, run.records, query, wish.workload)
    lengths = sorted({*question.lengths, query.tokens}) if question.lengths else []
    batches = sorted({*question.batches} - {query.batch})
    return Candidate(
        mechanism=name,
        attention=attention,
        prediction=here,
        measured=measured,
        lengths=_points([_resized(query, tokens=one) for one in lengths], here, wish.workload, "tokens"),
        batches=_points([replace(query, batch=one) for one in batches], here, wish.workload, "batch"),
    )


def _attention(mechanism: Mechanism, shape: AttentionShape, config: MechanismConfig) -> Attention:
    """Multi-head attention itself, with its 4 C x C weights and 4 C biases, or exact with others, or neither."""
    if not mechanism.exact:
        return "approximate"
    plain = 4 * shape.width * (shape.width + 1)
    return "exact" if mechanism.cost(shape, config, 4).parameters == plain else "exact, other weights"


def usual_lengths(tokens: int) -> tuple[int, ...]:
    """Lengths worth a look beside one: a quarter of it and twice it."""
    return tuple(sorted({max(round(tokens * factor), 1) for factor in LENGTH_FACTORS} - {tokens}))


def _resized(query: PredictionQuery, *, tokens: int) -> PredictionQuery:
    """The query at another length; a longer one gives the model a longer context."""
    return replace(query, tokens=tokens, model=query.model.replace(context=max(tokens, query.model.context)))


def _points(queries: Sequence[PredictionQuery], here: Prediction, workload: Workload, name: str) -> dict[int, Point]:
    """The workload at each query; a size that the mechanism refuses is left out."""
    points: dict[int, Point] = {}
    for query in queries:
        try:
            found = here if query == here.query else predict(query)
        except UserError:
            continue
        costs = costs_of(Candidate(mechanism=query.mechanism, attention="exact", prediction=found), workload)
        time, memory = costs["time"], costs["memory"]
        if isinstance(time, Quantity) and isinstance(memory, Quantity):
            points[getattr(query, name)] = Point(time_s=time.value, memory_bytes=memory.value)
    return points
