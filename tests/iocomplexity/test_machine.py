"""The memory machine: what it counts, what it refuses, and that its fast forms equal their literal definition."""

import numpy as np
import pytest

from wattention.core.errors import UserError
from wattention.iocomplexity.execution.trace import Recorder
from wattention.iocomplexity.memory.ledger import FastMemoryFullError
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.slow import UnwrittenReadError
from wattention.iocomplexity.problem.cuts import PairTile
from wattention.iocomplexity.problem.widths import Widths

A = np.arange(12.0).reshape(4, 3)


def loaded_machine(words: int = 100, **options: object) -> Machine:
    machine = Machine(words, **options)
    machine.place("A", A)
    machine.reserve("B", (4, 3))
    return machine


def test_loads_and_stores_are_counted_apart() -> None:
    machine = loaded_machine()
    with machine.load("A", slice(0, 2)) as tile:
        machine.store(tile, "B", slice(0, 2))
        machine.store(tile.part(columns=slice(0, 1)), "B", slice(2, 4), slice(0, 1))
    count = machine.count()
    assert (count.loads, count.stores, count.peak, machine.used) == (6, 8, 6, 0)
    np.testing.assert_array_equal(machine.result("B")[:2], A[:2])


def test_full_memory_says_what_is_needed_free_and_live() -> None:
    machine = loaded_machine(13)
    with machine.load("A"), pytest.raises(FastMemoryFullError) as error:
        machine.load("A", slice(0, 1))
    assert "3 words needed, 1 free of 13" in str(error.value)
    assert "live: A 4x3" in str(error.value)


def test_a_streamed_operand_needs_room_too() -> None:
    machine = loaded_machine(12)
    machine.place("C", np.ones((3, 1)))
    full = pytest.raises(FastMemoryFullError, match="streamed operands")
    with machine.load("A", slice(0, 3)) as tile, machine.zeros(3, 1) as out, full:
        out.add_product(tile, machine.slow("C"))


def test_an_unwritten_word_cannot_be_read() -> None:
    machine = loaded_machine()
    with pytest.raises(UnwrittenReadError, match="3 unwritten words of B"):
        machine.load("B", slice(0, 1))


def test_a_tile_is_gone_after_its_block() -> None:
    machine = loaded_machine()
    with machine.load("A") as tile:
        pass
    with pytest.raises(UserError, match="after it had left fast memory"):
        machine.store(tile, "B")
    with machine.zeros(4, 3) as out, pytest.raises(UserError, match="after it had left fast memory"):
        out.subtract(tile)


def test_a_tile_is_no_array() -> None:
    machine = loaded_machine()
    with machine.load("A") as tile, pytest.raises(UserError, match="cannot leave fast memory as an array"):
        np.exp(tile)


def test_inputs_and_results_are_copies() -> None:
    values = A.copy()
    machine = Machine(100)
    machine.place("A", values)
    with machine.load("A") as tile:
        tile.subtract(tile)
    np.testing.assert_array_equal(values, A)
    result = machine.result("A")
    result[:] = 0
    np.testing.assert_array_equal(machine.result("A"), A)


def test_widths_charge_room_and_traffic() -> None:
    machine = Machine(100, widths=Widths(inputs=1, accumulators=2, scratch=3))
    machine.place("A", A)
    machine.reserve("S", (4, 3), role="scratch", scratch=12)
    machine.reserve("L", (4, 1), role="statistics")
    with machine.zeros(4, 3) as tile, machine.statistics(4) as column:
        assert machine.used == 2 * 12 + 2 * 4
        machine.store(tile, "S")
        machine.store(column, "L")
    count = machine.count()
    assert (count.stores, count.statistics_stores, count.scratch_words) == (36 + 8, 8, 36)


def test_statistics_may_live_elsewhere() -> None:
    machine = Machine(10, widths=Widths(statistics=0))
    machine.reserve("L", (100, 1), role="statistics")
    with machine.statistics(100) as column:
        machine.store(column, "L")
    assert (machine.count().words, machine.count().peak) == (0, 0)


def test_masked_words_are_not_moved() -> None:
    machine = loaded_machine()
    where = np.array([[True, False, True]] * 4)
    with machine.load("A", where=where, otherwise=-1.0) as tile:
        machine.store(tile, "B", where=where)
    assert (machine.count().loads, machine.count().stores) == (8, 8)
    assert np.isnan(machine.result("B")[:, 1]).all()


def test_views_by_index_write_through() -> None:
    machine = loaded_machine()
    with machine.load("A") as tile, machine.load("A", slice(0, 2), slice(0, 2)) as other:
        tile.part(np.array([0, 3]), np.array([0, 2])).part(slice(0, 2), slice(0, 2)).subtract(other)
        machine.store(tile, "B")
    expected = A.copy()
    expected[np.ix_([0, 3], [0, 2])] -= A[:2, :2]
    np.testing.assert_array_equal(machine.result("B"), expected)


MASK = np.array([[True, False, True], [True, True, False], [False, True, True], [True, True, True]])
PAIRS = PairTile(slice(0, 4), slice(0, 3), 4, 3, 9, MASK)


def every_operation(machine: Machine) -> None:
    """Streamed products and sums of all kinds, masked and not."""
    draw = np.random.default_rng(0)
    for name, shape in (("X", (4, 5)), ("Y", (3, 5)), ("Z", (3, 2)), ("G", (4, 2))):
        machine.place(name, draw.standard_normal(shape))
    machine.place("P", np.where(MASK, draw.random((4, 3)), np.nan), role="scratch")
    for name, shape in (("S", (4, 3)), ("O", (4, 2)), ("W", (3, 2))):
        machine.reserve(name, shape, role="accumulators")
    with machine.zeros(4, 3) as s:
        s.add_product(machine.slow("X"), machine.slow("Y").T, onto=PAIRS, scale=0.5)
        with machine.load("X") as x, machine.load("Y") as y:
            s.add_product(x, machine.slow("Y").T, onto=PAIRS)
            s.add_product(machine.slow("X"), y.T, onto=PAIRS)
        with machine.maxima(4) as m, machine.statistics(4) as total:
            s.online_softmax(m, total, over=PAIRS)
        machine.store(s, "S", where=MASK)
        fresh = np.array([True, False, True, True])
        with machine.statistics(4) as ones:
            machine.accumulate("O", slice(0, 4), slice(0, 2), s, machine.slow("Z"), fresh=True, over=PAIRS)
            machine.accumulate(
                "O", slice(0, 4), slice(0, 2), s, machine.slow("Z"), fresh=fresh, decay=ones, over=PAIRS, scale=2.0
            )
        with machine.load("G") as g:
            machine.accumulate("W", slice(0, 3), slice(0, 2), s.T, g, fresh=True, over=PAIRS)
            machine.accumulate("W", slice(0, 3), slice(0, 2), s.T, g, remote=True, over=PAIRS)
    with machine.zeros(4, 2) as out, machine.zeros(3, 2) as back, machine.load("X", ALL_ROWS, FIRST) as weights:
        out.add_product(machine.slow("P"), machine.slow("Z"), over=PAIRS)
        back.add_product(machine.slow("P").T, machine.slow("G"), over=PAIRS, weights=weights)
        machine.reserve("out", (4, 2))
        machine.reserve("back", (3, 2))
        machine.store(out, "out")
        machine.store(back, "back")


ALL_ROWS, FIRST = slice(0, 4), slice(0, 1)
RESULTS = ("S", "O", "W", "out", "back")


@pytest.mark.parametrize("widths", [Widths(), Widths(inputs=2, accumulators=3, scratch=1, statistics=1)])
def test_streamed_forms_equal_the_literal_loop(widths: Widths) -> None:
    fast = Machine(400, widths=widths)
    literal = Machine(400, widths=widths, observer=Recorder(align_words=1, word_by_word=True))
    null = Machine(400, widths=widths, numbers=False)
    for machine in (fast, literal, null):
        every_operation(machine)
        assert machine.used == 0
    assert fast.count() == literal.count() == null.count()
    for name in RESULTS:
        np.testing.assert_allclose(literal.result(name), fast.result(name), atol=1e-13)


def test_multiply_adds_are_those_of_unmasked_pairs() -> None:
    machine = Machine(400)
    machine.place("X", np.ones((4, 5)))
    machine.place("Y", np.ones((3, 5)))
    with machine.zeros(4, 3) as s:
        s.add_product(machine.slow("X"), machine.slow("Y").T, onto=PAIRS)
    assert machine.count().multiply_adds == 9 * 5


def test_no_room_at_all_is_an_error() -> None:
    with pytest.raises(UserError, match="at least 1 word"):
        Machine(0)
