"""Whole cells where an energy counter can be read: every phase is there, in its order, for every mechanism's caches."""

import itertools
import time

import pytest

from wattention.core.quantities import Absent, Quantity, measured
from wattention.core.records import CellKey
from wattention.core.run_spec import STUDY_MECHANISMS, CellSpec
from wattention.lab.cells.lengths import run_length_cell
from wattention.lab.cells.train import run_train_cell
from wattention.lab.phases import energy
from wattention.meters.base import Interpretation, Meter, OpenedMeters, OpenMeter, open_meters
from wattention.meters.window import Panel
from wattention.study.configure import DEFAULTS, build_run_spec

NEEDED_S, WATTS = 0.03, 50.0
SMALL = {
    "model": {"layers": 1, "heads": 2, "width": 32, "context": 32},
    "data": {"max_bytes": 100_000, "heldout_tokens": 64},
    "training": {"steps": 3, "batch": 1},
    "measure": {"lengths": (16, 32), "decode_tokens": 4, "length_budget_s": 0.0},
}


class WallCounter:
    """A counter on a machine that draws the same power whatever happens."""

    def __init__(self):
        self.facts = {"domains": {"gpu0": {"step_s": 0.001, "step_j": 0.05, "in_total": True}}, "missing": {}}

    def arm(self):
        pass

    def start(self):
        return {"j": WATTS * time.perf_counter()}

    stop = start

    def close(self):
        pass


def interpret(facts, before, after, interval):
    reading = (
        measured(after["j"] - before["j"], "J", "a wall counter")
        if interval.elapsed_s >= NEEDED_S
        else Absent("not measurable: too short")
    )
    return Interpretation(readings={"energy_j": reading})


COUNTER = Meter(
    name="energy", title="", readings=("energy_j",), unit="J", kind="counter", origin="measured",
    available=lambda device: None, open=lambda device: WallCounter(), interpret=interpret, closeness=70,
)  # fmt: skip


@pytest.fixture
def counted(monkeypatch):
    """Give every panel a counter that needs windows of milliseconds."""

    def panel(device, names=None):
        opened = open_meters(device, ["clock", "cpu"])
        return Panel(OpenedMeters(opened=(*opened.opened, OpenMeter(meter=COUNTER, instrument=WallCounter()))))

    monkeypatch.setattr(Panel, "open", panel)
    monkeypatch.setattr(energy, "needed_window_s", lambda facts: NEEDED_S)


def cell(source, kind, **measure):
    layers = [
        DEFAULTS,
        SMALL,
        {"mechanisms": [{"label": "m", "source": source}], "measure": {"phase_energy": True, **measure}},
    ]
    run = build_run_spec(layers, [], threads=1)
    return CellSpec(run=run, key=CellKey(kind=kind, mechanism="m", block=0), order=0)


@pytest.mark.parametrize("mechanism", STUDY_MECHANISMS)
def test_a_training_cell_resolves_every_phase_it_can_repeat(counted, mechanism):
    phases = run_train_cell(cell(mechanism, "train"), lambda **_: None).phases
    assert set(phases) >= {"idle_before", "energy", "energy_evaluate", "energy_prefill", "energy_decode", "idle_after"}
    for name in ("energy", "energy_evaluate", "energy_prefill", "energy_decode", "idle_before", "idle_after"):
        readings = phases[name].readings
        # the counter is read outside the clock's readings: it sees at least their interval
        assert readings["energy_j"].value >= WATTS * readings["time_s"].value > 0, name
    decode = phases["energy_decode"].readings
    if "repeats" in decode:  # unless four tokens took long enough by themselves
        assert decode["tokens"].value == 4 * decode["repeats"].value
        assert "copy of the prompt's caches" in decode["tokens"].source
    ordinary = phases["decode"].readings["cache_bytes_per_token"]
    assert ordinary.source == "caches of all layers after 32 tokens"  # the repeats did not touch the measured caches


def test_phases_lie_on_one_clock_in_the_order_of_the_work(counted):
    phases = run_train_cell(cell("sdpa", "train"), lambda **_: None).phases
    spans = sorted(phase.samples["window_s"] for phase in phases.values() if "window_s" in phase.samples)
    assert spans[0][0] == 0
    assert all(begin <= end for begin, end in spans)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))
    order = ("build", "idle_before", "warmup", "train", "evaluate", "prefill", "decode", "idle_after")
    begins = [phases[name].samples["window_s"][0] for name in order]
    assert begins == sorted(begins)


def test_a_length_cell_measures_energy_at_every_length(counted):
    phases = run_length_cell(cell("sdpa", "lengths"), lambda **_: None).phases
    assert list(phases) == ["idle_before", "16", "32"]
    for name in ("16", "32"):
        found = phases[name].readings
        assert isinstance(found["layer_energy_j"], Quantity)
        assert found["layer_energy_j"].value >= WATTS * found["layer_energy_time_s"].value > 0


def test_a_user_who_wants_no_phases_waits_for_none(counted):
    phases = run_train_cell(cell("sdpa", "train", phase_energy=False), lambda **_: None).phases
    assert "energy" in phases
    assert not [name for name in phases if name.startswith("idle_")]
    assert not [name for name, phase in phases.items() if name.startswith("energy_") and "repeats" in phase.readings]
    assert [*run_length_cell(cell("sdpa", "lengths", phase_energy=False), lambda **_: None).phases] == ["16", "32"]
