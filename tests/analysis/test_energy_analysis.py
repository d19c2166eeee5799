"""Energy of cells: gross, net, phases, ratios and the split into power and time."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.analysis.energy import PHASES, TRAIN, energies, idle_power, ratios, summarise, window_energy
from wattention.analysis.energy_interval import log_half_width
from wattention.analysis.power import split_energy
from wattention.core.quantities import Absent, Quantity, counted, measured
from wattention.core.records import CellKey, CellRecord, Phase

TOKENS = 1000.0


def joules(value, *, window=0.0, shared=0.0, offset=0.0):
    """Readings of one window's energy, its uncertainty in parts, in joules."""
    half = math.hypot(window, shared)
    parts = {"window": window, "shared": shared, "offset": offset}
    return {
        "energy_j": Quantity(
            value=value, unit="J", origin="measured", source="counter", low=value - half, high=value + half
        ),
        **{f"uncertainty_{name}_j": measured(size, "J", "meter") for name, size in parts.items()},
    }


def cell(label="a", block=0, *, energy_j=1000.0, seconds=10.0, idle_w=(20.0, 20.0), **parts):
    phases = {
        "energy": Phase(
            readings={
                **joules(energy_j, **parts),
                "time_s": measured(seconds, "s", "clock"),
                "tokens": counted(TOKENS, "token", "plan"),
            }
        )
    }
    for side, watts in zip(("before", "after"), idle_w, strict=False):
        readings = {**joules(watts * 5), "time_s": measured(5.0, "s", "clock")}
        phases[f"idle_{side}"] = Phase(readings=readings)
    return CellRecord(
        key=CellKey(kind="train", mechanism=label, block=block), order=0, status="ok", started_utc="", phases=phases
    )


def test_net_is_gross_less_the_idle_machine_in_the_same_time():
    found = window_energy(cell(idle_w=(18.0, 22.0)), TRAIN)
    assert found.gross.value == 1000
    assert found.net.value == pytest.approx(1000 - 20 * 10)
    assert found.net.window * found.net.value == pytest.approx(2 * 10)  # half of the idle windows' difference
    assert "less 20 W x 10 s of the idle machine" in found.net.source


def test_a_gain_acts_on_net_energy_too_and_a_constant_error_cancels():
    found = window_energy(cell(shared=50.0, offset=50.0), TRAIN)
    assert (found.gross.shared, found.gross.offset) == (0.05, 0.05)
    assert (found.net.shared, found.net.offset) == (0.05, 0.0)


def test_one_idle_window_is_enough_and_none_is_said():
    assert idle_power(cell(idle_w=(20.0,))).source.startswith("idle windows on one side of the work")
    none = window_energy(cell(idle_w=()), TRAIN)
    assert none.net == Absent("no idle window: the machine is watched only where an energy counter can be read")
    drowned = window_energy(cell(idle_w=(99.0, 101.0)), TRAIN)
    assert "cannot be told apart" in drowned.net.reason


def test_an_estimates_net_is_its_models():
    range_ = {"low": 10.0, "high": 90.0}
    readings = {
        "energy_j": Quantity(value=30.0, unit="J", origin="estimated", source="a model", **range_),
        "energy_above_idle_j": Quantity(value=20.0, unit="J", origin="estimated", source="a model", low=8.0, high=50.0),
        "time_s": measured(1.0, "s", "clock"),
        "tokens": counted(10, "token", "plan"),
    }
    record = CellRecord(
        key=CellKey(kind="train", mechanism="a", block=0), order=0, status="ok", started_utc="",
        phases={"energy": Phase(readings=readings)},
    )  # fmt: skip
    for net, value, low, high in ((False, 3.0, 1.0, 9.0), (True, 2.0, 0.8, 5.0)):
        said = summarise(energies({"a": {0: record}}, TRAIN, net=net))["a"]
        assert said.value == pytest.approx(value)
        assert (said.low, said.high) == pytest.approx((low, high))
        assert said.origin == "estimated"


def test_zero_joules_are_not_a_number():
    readings = {"energy_j": measured(0.0, "J", "counter"), "time_s": measured(1.0, "s", "clock")}
    record = CellRecord(
        key=CellKey(kind="train", mechanism="a", block=0), order=0, status="ok", started_utc="",
        phases={"evaluate": Phase(readings=readings)},
    )  # fmt: skip
    phase = next(phase for phase in PHASES if phase.name == "evaluate")
    assert window_energy(record, phase).gross.reason.startswith("not measurable")
    assert isinstance(window_energy(record, TRAIN), Absent)


def test_the_interval_is_the_instruments_where_nothing_is_repeated():
    one = {"a": {0: cell(window=30.0, shared=40.0)}}
    said = summarise(energies(one, TRAIN))["a"]
    assert math.log(said.high / said.value) == pytest.approx(0.05)  # 3 % and 4 % in quadrature
    assert math.log(said.value / said.low) == pytest.approx(0.05)


@settings(deadline=None, max_examples=60)
@given(spread=st.floats(0.001, 0.5), window=st.floats(0, 0.3), shared=st.floats(0, 0.3), blocks=st.integers(1, 20))
def test_windows_average_out_and_the_shared_part_does_not(spread, window, shared, blocks):
    many = log_half_width(spread=None, windows=[[window] * blocks], shared=shared)
    assert (many or 0.0) == pytest.approx(math.hypot(window / math.sqrt(blocks), shared))
    assert log_half_width(spread=spread) == spread
    whole = log_half_width(spread=spread, windows=[[window] * blocks], shared=shared)
    assert whole == pytest.approx(math.hypot(spread, many or 0.0))


def test_the_sensors_gain_cancels_in_ratios_and_its_constant_as_far_as_both_draw_alike():
    cells = {
        "a": {0: cell("a", 0, energy_j=1000, shared=100, offset=100)},
        "b": {0: cell("b", 0, energy_j=500, shared=100, offset=100)},
        "c": {0: cell("c", 0, energy_j=1000, shared=100, offset=100)},
        "d": {0: cell("d", 0, energy_j=500, shared=50)},
    }
    found = ratios(energies(cells, TRAIN), "a")
    assert math.log(found["b"].high / found["b"].value) == pytest.approx(0.2 - 0.1)
    assert found["c"].low is None  # both alike and nothing repeated: no uncertainty is known, and nothing is proved
    assert found["c"].tie
    assert found["d"].high == pytest.approx(0.5 * math.exp(0.1))


def blocks_of(label, base_j, seconds, blocks=4, **parts):
    wobble = itertools.cycle((1.0, 1.01, 0.99, 1.005))
    return {
        block: cell(label, block, energy_j=base_j * next(wobble), seconds=seconds, idle_w=(10.0, 10.0), **parts)
        for block in range(blocks)
    }


def test_the_split_adds_up_exactly_and_says_what_is_decided():
    cells = {"slow": blocks_of("slow", 1000, 10.0), "fast": blocks_of("fast", 820, 7.9, window=2.0)}
    split = split_energy(cells, "slow")["fast"]
    assert split.energy.value == pytest.approx(0.82)
    assert math.log(split.energy.value) == pytest.approx(math.log(split.time.value) + math.log(split.power.value))
    assert split.saved.value == pytest.approx(0.18)
    assert split.from_time.value + split.from_power.value == pytest.approx(split.saved.value)
    assert split.from_time.value == pytest.approx(0.214, abs=1e-3)
    assert split.from_power.value < 0
    assert split.saved.decided
    net = split_energy(cells, "slow", net=True)["fast"]
    assert net.energy.value == pytest.approx((820 - 79) / (1000 - 100), rel=1e-2)
    assert net.time.value == pytest.approx(split.time.value)


@settings(deadline=None, max_examples=60)
@given(energy=st.floats(0.1, 10), time=st.floats(0.1, 10))
def test_the_parts_of_a_saving_always_sum_to_it(energy, time):
    cells = {"a": {0: cell("a")}, "b": {0: cell("b", energy_j=1000 * energy, seconds=10 * time)}}
    split = split_energy(cells, "a")["b"]
    assert split.from_time.value + split.from_power.value == pytest.approx(1 - energy, abs=1e-9)


def test_an_estimated_cell_never_mixes_with_measured_ones():
    found = {"a": {0: cell("a", 0), 1: cell("a", 1)}}
    readings = {
        **found["a"][1].phases["energy"].readings,
        "energy_j": Quantity(value=9.0, unit="J", origin="estimated", source="a model"),
    }
    found["a"][1] = CellRecord(
        key=CellKey(kind="train", mechanism="a", block=1), order=0, status="ok", started_utc="",
        phases={"energy": Phase(readings=readings)},
    )  # fmt: skip
    assert summarise(energies(found, TRAIN))["a"].value == pytest.approx(1.0)
