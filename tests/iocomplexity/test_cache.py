"""Caches against an obvious simulation, and traces against the runs they come from."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.iocomplexity.cache.comparison import compare
from wattention.iocomplexity.cache.lru import Cache, simulate, simulate_levels
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.execution.trace import Recorder, Trace, record
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import SCHEDULES

WORD = 4


def obvious(accesses: list[int], sets: int, ways: int) -> tuple[int, int, int, list[int]]:
    """Misses, write-backs, dirty lines at the end, and what the next level is asked."""
    table: list[OrderedDict[int, int]] = [OrderedDict() for _ in range(sets)]
    misses = write_backs = 0
    asked = []
    for access in accesses:
        line, write = access >> 1, access & 1
        lines = table[line % sets]
        if line in lines:
            lines[line] |= write
            lines.move_to_end(line)
            continue
        misses += 1
        if len(lines) == ways:
            victim, dirty = lines.popitem(last=False)
            write_backs += dirty
            asked += [2 * victim + 1] * dirty
        asked.append(2 * line)
        lines[line] = write
    return misses, write_backs, sum(sum(lines.values()) for lines in table), asked


@given(st.lists(st.integers(0, 79), max_size=300), st.integers(1, 6), st.integers(1, 6))
@settings(deadline=None, max_examples=150)
def test_both_kinds_of_cache_do_the_obvious(accesses: list[int], sets: int, ways: int) -> None:
    trace = Trace(accesses=np.array(accesses, np.int64), words=40, word_bytes=WORD)
    by_set = simulate(trace, sets * ways * WORD, WORD, ways)
    assert (by_set.misses, by_set.write_backs, by_set.dirty_at_end) == obvious(accesses, sets, ways)[:3]
    whole = simulate(trace, sets * ways * WORD, WORD)
    assert (whole.misses, whole.write_backs, whole.dirty_at_end) == obvious(accesses, 1, sets * ways)[:3]
    assert whole.hits + whole.misses == len(accesses)


@given(st.lists(st.integers(0, 79), max_size=300), st.sampled_from([None, 2]))
@settings(deadline=None, max_examples=60)
def test_a_second_level_sees_misses_and_write_backs(accesses: list[int], ways: int | None) -> None:
    trace = Trace(accesses=np.array(accesses, np.int64), words=40, word_bytes=WORD)
    levels = [Cache(size_bytes=4 * WORD, line_bytes=WORD, ways=ways), Cache(size_bytes=10 * WORD, line_bytes=WORD)]
    first, second = simulate_levels(trace, levels)
    asked = obvious(accesses, 1 if ways is None else 2, ways or 4)[3]
    assert second.accesses == first.misses + first.write_backs == len(asked)
    assert (second.misses, second.write_backs, second.dirty_at_end) == obvious(asked, 1, 10)[:3]


@pytest.mark.parametrize("name", SCHEDULES.names())
def test_streamed_products_are_laid_out_as_the_loop_does(name: str) -> None:
    schedule, problem = SCHEDULES.load(name), attention_problem(tokens=6, head_dim=3)
    if schedule.refuses(problem) is not None:
        problem = attention_problem(tokens=6, head_dim=3, values_in_keys=True)
    recorders = [Recorder(align_words=4, word_by_word=flag) for flag in (False, True)]
    for recorder in recorders:
        execute(schedule, problem, 60, numbers=False, observer=recorder)
    at_once, literal = (recorder.trace(WORD) for recorder in recorders)
    assert at_once.words == literal.words
    np.testing.assert_array_equal(at_once.accesses, literal.accesses)


def test_an_infinite_cache_fetches_every_line_once() -> None:
    problem = attention_problem(tokens=24, head_dim=8)
    trace = record(SCHEDULES.load("flash2"), problem, 256, word_bytes=WORD, align_bytes=64)
    assert ((trace.accesses >> 1) < trace.words).all()
    touched = len(np.unique(trace.lines(64) >> 1))
    whole = simulate(trace, 1 << 20, 64)
    assert (whole.misses, whole.write_backs) == (touched, 0)
    inputs_and_outputs = 4 * 24 * 8 * WORD // 64
    assert touched >= inputs_and_outputs


def test_slack_brings_lru_close_to_the_ideal() -> None:
    """Tiles planned for half the cache move nearly what the program would; tiles that fill it thrash."""
    problem = attention_problem(tokens=96, head_dim=16)
    full, half = compare(SCHEDULES.load("flash2"), problem, cache_bytes=4096, shares=(1.0, 0.5))
    assert half.lru_ratio < 1.2
    assert full.lru_ratio > half.lru_ratio
    assert full.ideal.words < half.ideal.words
    assert half.set_ratio >= 0.9


@pytest.mark.parametrize(
    ("size", "line", "ways", "message"),
    [(2, 4, None, "at least one line"), (64, 4, 3, "ways of a cache divide"), (64, 6, None, "whole words")],
)
def test_bad_caches_teach(size: int, line: int, ways: int | None, message: str) -> None:
    trace = Trace(accesses=np.zeros(1, np.int64), words=1, word_bytes=WORD)
    with pytest.raises(UserError, match=message):
        simulate(trace, size, line, ways)


def test_a_trace_has_one_word_size() -> None:
    problem = attention_problem(tokens=4, head_dim=2, widths=Widths(accumulators=2))
    with pytest.raises(UserError, match="one word size"):
        record(SCHEDULES.load("flash2"), problem, 100)
