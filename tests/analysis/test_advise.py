"""The ranking, what is set aside, the front, what would change the answer: on made-up predictions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.predictions import prediction
from wattention.analysis.advice_points import Candidate, Point, Wish
from wattention.analysis.advise import advise
from wattention.core.quantities import measured

GIB = 2**30


def candidate(name, attention="exact", *, lengths=None, batches=None, measured=None, **point):
    return Candidate(
        mechanism=name,
        attention=attention,
        prediction=prediction(name, **point),
        lengths=lengths or {},
        batches=batches or {},
        measured=measured or {},
    )


FLASH = candidate("flash", train_s=1.0, decode_s=3.0, peak_bytes=4 * GIB, joules=100.0)
BASELINE = candidate(
    "baseline", train_s=2.0, decode_s=3.1, peak_bytes=16 * GIB, joules=210.0, moved=5e9, bound_by="main bandwidth"
)
LINEAR = candidate("linear", "approximate", train_s=0.8, decode_s=2.0, peak_bytes=3 * GIB, joules=70.0)
GQA = candidate("gqa", "exact, other weights", train_s=1.01, decode_s=2.5, peak_bytes=3.5 * GIB, joules=101.0)
ALL = (BASELINE, FLASH, LINEAR, GQA)


def names(advice):
    return [choice.mechanism for choice in advice.choices]


def test_the_fastest_comes_first_and_approximate_attention_is_told_apart():
    advice = advise(ALL, Wish())
    assert names(advice) == ["linear", "flash", "gqa", "baseline"]
    assert [choice.exact for choice in advice.choices] == [False, True, True, True]
    assert advice.choices[1].ratio == pytest.approx(1.25)


def test_exact_only_sets_the_approximate_aside_and_ties_are_equal():
    advice = advise(ALL, Wish(exact_only=True))
    assert names(advice) == ["flash", "gqa", "baseline"]
    assert [choice.tied for choice in advice.choices] == [True, True, False]
    assert advice.set_aside == {"linear": "approximate, and exact attention was asked for"}
    assert advice.choices[1].why == "equal to flash as far as a prediction can tell"


def test_what_does_not_fit_is_set_aside_and_said_by_how_much():
    advice = advise(ALL, Wish(memory_bytes=8 * GIB))
    assert advice.set_aside == {"baseline": "memory: needs 2 times what there is"}
    nothing = advise(ALL, Wish(memory_bytes=GIB))
    assert not nothing.choices
    assert len(nothing.set_aside) == 4


def test_the_reason_names_what_the_time_is_bound_by():
    why = advise((FLASH, BASELINE), Wish()).choices[1].why
    assert why.startswith("5 times the bytes from main memory")


def test_a_mechanism_that_cannot_run_gives_its_reason():
    refused = Candidate(mechanism="sdpa", attention="exact", refused="cannot run there: no kernel")
    advice = advise((FLASH, refused), Wish())
    assert advice.set_aside == {"sdpa": "cannot run there: no kernel"}


def test_an_energy_budget_looks_at_the_whole_interval():
    tokens = 1024e6  # 1e6 steps of 100 J, known within a factor of two
    kept = advise((FLASH,), Wish(energy_budget_j=201e6, run_tokens=tokens)).choices[0]
    perhaps = advise((FLASH,), Wish(energy_budget_j=100e6, run_tokens=tokens)).choices[0]
    assert (kept.budget, perhaps.budget) == ("kept", "perhaps")
    broken = advise((FLASH,), Wish(energy_budget_j=40e6, run_tokens=tokens))
    assert broken.set_aside == {"flash": "energy: at least 1.2 times the budget"}
    unknown = advise((candidate("flash", train_s=1.0),), Wish(energy_budget_j=1.0, run_tokens=tokens)).choices[0]
    assert unknown.budget == "not known"


def test_the_front_has_what_nothing_beats_in_everything():
    front = {choice.mechanism for choice in advise(ALL, Wish()).choices if choice.on_front}
    assert front == {"linear"}
    thrifty = candidate("window", "approximate", train_s=3.0, peak_bytes=GIB, joules=60.0)
    assert {c.mechanism for c in advise((*ALL, thrifty), Wish()).choices if c.on_front} == {"linear", "window"}


def test_crossovers_are_with_the_best_choice():
    grid = {512: 1.0, 1024: 2.0, 4096: 8.0}
    flash = candidate("flash", train_s=1.0, lengths={t: Point(time_s=x, memory_bytes=1.0) for t, x in grid.items()})
    window = candidate(
        "window", train_s=2.0, lengths={t: Point(time_s=3.0, memory_bytes=1.0) for t in grid}, attention="approximate"
    )
    found = advise((flash, window), Wish()).crossovers["window"]
    assert found.kind == "from"
    assert 1024 < found.length_tokens < 4096


def test_what_would_change_the_answer():
    lengths = {2048: Point(time_s=9.0, memory_bytes=8 * GIB), 8192: Point(time_s=30.0, memory_bytes=80 * GIB)}
    flash = candidate("flash", train_s=1.0, peak_bytes=4 * GIB, lengths=lengths, joules=10.0)
    lean = candidate(
        "lean", train_s=1.5, peak_bytes=2 * GIB, joules=5.0,
        lengths={2048: Point(time_s=8.0, memory_bytes=GIB), 8192: Point(time_s=31.0, memory_bytes=90 * GIB)},
        batches={4: Point(time_s=9.0, memory_bytes=GIB)},
    )  # fmt: skip
    advice = advise((flash, lean), Wish(memory_bytes=24 * GIB))
    found = {change.condition: change.best for change in advice.changes}
    assert found == {
        "length 2048": "lean",
        "length 8192": "nothing fits",
        "batch 4": "lean",
        "ranked by energy": "lean",
        "ranked by memory": "lean",
        "less than 4 GiB of memory": "lean",
        "less than 2 GiB of memory": "nothing fits",
    }
    assert "exact attention only" in advice.robust
    decoding = advise(ALL, Wish(workload="decode")).choices[0]
    assert (decoding.mechanism, decoding.largest_batch) == ("linear", None)
    assert advise(ALL, Wish()).choices[0].largest_batch == 4


def test_measured_numbers_are_used_and_a_mix_is_marked():
    slow = measured(9.0, "s/token", "clock")
    known = candidate("flash", train_s=1.0, measured={"time": slow})
    advice = advise((known, BASELINE), Wish())
    assert names(advice) == ["baseline", "flash"]
    assert advice.choices[1].costs["time"] is slow
    assert advice.marks[0].startswith("measured and predicted times are mixed: flash measured")
    assert not any("mixed" in mark for mark in advise((known,), Wish()).marks)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.integers(1, 40), st.sampled_from(["exact", "approximate"])),
        min_size=1,
        max_size=6,
    ),
    st.floats(1, 40),
)
def test_every_mechanism_is_either_chosen_or_set_aside_and_the_best_is_the_fastest_that_fits(points, limit):
    found = [
        candidate(f"m{i}", attention, train_s=time, peak_bytes=gib * GIB)
        for i, (time, gib, attention) in enumerate(points)
    ]
    advice = advise(found, Wish(memory_bytes=limit * GIB))
    assert {*names(advice), *advice.set_aside} == {one.mechanism for one in found}
    fitting = [time for time, gib, _ in points if gib <= limit]
    assert bool(advice.choices) == bool(fitting)
    if fitting:
        best_s = advice.choices[0].costs["time"].value
        assert best_s == pytest.approx(min(fitting) / 1024)
        # of equally fast ones exact attention comes first, and another may need less memory
        assert any(choice.on_front for choice in advice.choices if choice.costs["time"].value == best_s)
        assert not {change.best for change in advice.changes} & {c.mechanism for c in advice.choices if c.tied}
