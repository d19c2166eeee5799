"""How memory grows with the batch is what traces of other batches say, and is asked once of a program."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.analysis.predict_costs import largest_batch
from wattention.core.operators import MemoryLine, StepTrace
from wattention.core.specs import ModelSpec
from wattention.lab.traces import growth, tracing
from wattention.lab.traces.operator_recorder import MARK, Log
from wattention.mechanisms.base import MECHANISMS

MODEL = ModelSpec(layers=3, heads=4, width=64, context=2048, vocabulary=128)
EIGHT = tuple(MECHANISMS.names())
SCRATCH_BYTES = 25 * 65536 * 16 * 4
"""A few temporaries of the kernels that work on 65536 tokens of heads at a time."""
DEVICES = [("cpu", "float32"), ("cuda", "bfloat16")]


def traced(name: str, target: str, precision: Any, tokens: int, batch: int) -> StepTrace:
    mechanism = MECHANISMS.load(name)
    return tracing.trace(
        "train", MODEL, mechanism, mechanism.config(), tokens=tokens, batch=batch, precision=precision, target=target
    )


def peak(trace: StepTrace) -> int:
    return sum(trace.peak()[1].values())


def at(trace: StepTrace, batch: int) -> float:
    return max(line.fixed_bytes + batch * line.sequence_bytes for line in trace.growth)


@pytest.mark.parametrize("name", EIGHT)
@settings(max_examples=8, deadline=None)
@given(tokens=st.integers(60, 2048), batch=st.integers(1, 9), other=st.integers(2, 300))
def test_the_lines_are_the_peaks_of_other_batches(name: str, tokens: int, batch: int, other: int) -> None:
    found = traced(name, "cpu", "float32", tokens, batch)
    if batch > 1:  # one sequence may have views where several need copies
        assert at(found, batch) == pytest.approx(peak(found), rel=1e-9)
    assert at(found, other) == pytest.approx(peak(traced(name, "cpu", "float32", tokens, other)), rel=1e-9)


@pytest.mark.parametrize("name", EIGHT)
@settings(max_examples=8, deadline=None)
@given(tokens=st.integers(60, 2048), batch=st.integers(2, 9), other=st.integers(200, 2000))
def test_on_a_gpu_scratch_has_a_limit_and_is_never_told_too_small(
    name: str, tokens: int, batch: int, other: int
) -> None:
    found = traced(name, "cuda", "bfloat16", tokens, batch)
    really = peak(traced(name, "cuda", "bfloat16", tokens, other))
    assert really * 0.98 <= at(found, other) <= really + SCRATCH_BYTES


@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize(("target", "precision"), DEVICES)
def test_a_program_met_before_answers_as_one_that_is_new(name: str, target: str, precision: str) -> None:
    tracing.traces.cache_clear()
    growth._GROWTH.clear()
    new = traced(name, target, precision, 704, 3)
    tracing.traces.cache_clear()
    growth._GROWTH.clear()
    traced(name, target, precision, 1408, 5)
    again, limited = traced(name, target, precision, 704, 3), target == "cuda" and name in ("linear", "lsh")
    for batch in (3, 300):
        assert at(again, batch) == pytest.approx(at(new, batch), rel=0.02 if limited else 1e-9)


def test_the_second_trace_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []
    logs_of = tracing.logs_of

    def counted(run: Any, tensors: Any) -> Any:
        batches.append(run.batch)
        return logs_of(run, tensors)

    monkeypatch.setattr(tracing, "logs_of", counted)
    tracing.traces.cache_clear()
    growth._GROWTH.clear()
    for tokens in (500, 501, 1000):
        traced("flash", "cpu", "float32", tokens, 2)
    assert batches == [2, 2 * growth.MANY, 2, 2]


@pytest.mark.parametrize(("name", "about"), [("flash", 0), ("mla", 0), ("lsh", 0.05)])
def test_the_largest_batch_is_the_last_that_fits(name: str, about: float) -> None:
    capacity = 50 * peak(traced(name, "cuda", "bfloat16", 777, 8))
    most = largest_batch(traced(name, "cuda", "bfloat16", 777, 4), capacity)
    assert peak(traced(name, "cuda", "bfloat16", 777, most)) <= capacity
    assert peak(traced(name, "cuda", "bfloat16", 777, int(most * (1 + about)) + 1)) > capacity


@pytest.mark.parametrize("name", ["flash", "lsh"])
def test_a_batch_of_any_size_can_be_asked_about(name: str) -> None:
    found = traced(name, "cuda", "bfloat16", 1000, 10**9)
    assert not found.marks
    assert at(found, 10**9) == pytest.approx(peak(found), rel=1e-9)


def test_nothing_fits_where_the_model_alone_does_not() -> None:
    trace = traced("flash", "cpu", "float32", 128, 2)
    assert largest_batch(trace, trace.growth[-1].fixed_bytes - 1) == 0


def log(*changes: tuple[str, int], sizes: tuple[int, ...]) -> Log:
    """A log of storages that come and stay; (phase, storage)."""
    made = Log(kinds=["activations"] * len(sizes), dims=[1] * len(sizes), sizes=list(sizes))
    made.events = [MARK, *((phase, number, 1) for phase, number in changes), MARK]
    return made


def test_scratch_with_an_upper_limit_does_not_grow() -> None:
    one = log(("forward, layer", 0), ("forward, layer", 1), sizes=(1000, 600))
    many = log(("forward, layer", 0), ("forward, layer", 1), sizes=(1000 * growth.MANY, 900))
    lines = growth.growth_of(one, batch=10, layers=1, kind="limited", trace=lambda batch: many)
    assert lines == (MemoryLine(900, 100),)


def test_programs_that_do_not_correspond_are_told_phase_by_phase() -> None:
    one = log(("forward, layer", 0), sizes=(1000,))
    many = log(("forward, layer", 0), ("forward, layer", 1), sizes=(1000, 999 * growth.MANY))
    (line,) = growth.growth_of(one, batch=3, layers=1, kind="other", trace=lambda batch: many)
    assert line.fixed_bytes + 3 * line.sequence_bytes == pytest.approx(1000)
    assert line.fixed_bytes + 3 * growth.MANY * line.sequence_bytes == pytest.approx(1000 + 999 * growth.MANY)
