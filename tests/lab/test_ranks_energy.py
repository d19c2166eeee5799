"""The energy phase over ranks: all of them repeat one number of steps, and an estimate counts each machine once."""

from types import SimpleNamespace

import pytest

from wattention.core.quantities import Absent, counted, measured
from wattention.core.records import CellKey, Phase
from wattention.core.run_spec import CellSpec
from wattention.lab.energy_phase import measure_training_energy
from wattention.lab.parallel import OneProcess
from wattention.study.configure import DEFAULTS, build_run_spec


class TwoRanks(OneProcess):
    """Rank 0 of two on two machines of 8 cores; the other rank's counter needs a longer window than ours."""

    size = 2
    cores = 16

    def __init__(self, others_need_s):
        self.others_need_s = others_need_s

    def gather(self, item):
        return [item, self.others_need_s]

    def merge(self, phase):
        energy = measured(phase.readings["energy_j"].value * 2, "J", "both ranks")
        return Phase(readings={**phase.readings, "energy_j": energy})


class Window:
    def __init__(self):
        self.flags = ()
        self.readings = {"energy_j": measured(50.0, "J", "counter"), "time_s": measured(9.0, "s", "clock")}

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        pass


def panel(*counter_steps_s):
    domains = {f"package{i}": {"step_s": step} for i, step in enumerate(counter_steps_s)}
    energy = SimpleNamespace(
        meter=SimpleNamespace(name="energy"), instrument=SimpleNamespace(facts={"domains": domains})
    )
    return SimpleNamespace(meters=SimpleNamespace(opened=(energy,) if domains else ()), window=Window)


@pytest.fixture
def cell():
    run = build_run_spec([DEFAULTS, {"mechanisms": ["sdpa"], "parallel": "ddp", "ranks": 2}], [], threads=1)
    return CellSpec(run=run, key=CellKey(kind="train", mechanism="sdpa", block=0), order=0)


def train(energy):
    return Phase(
        readings={
            "energy_j": energy,
            "time_s": measured(2.0, "s", "slowest"),
            "cpu_s": measured(3.0, "s", "sum"),
            "steps": counted(20, "1", "plan"),
            "tokens": counted(200, "token", "plan"),
        }
    )


def test_the_rank_that_needs_the_longest_window_decides_for_all(cell):
    taken = []
    phase = measure_training_energy(
        cell, panel(0.001), train(Absent("too short")), lambda: taken.append(1), 10, TwoRanks(others_need_s=8.0)
    )
    assert len(taken) == 120  # 8 s with half as much again, at 10 steps a second
    assert phase.readings["tokens"].value == 1200
    assert phase.readings["energy_j"].value == 100.0


def test_a_rank_without_a_counter_still_takes_the_others_steps(cell):
    taken = []
    measure_training_energy(cell, panel(), train(Absent("no RAPL")), lambda: taken.append(1), 10, TwoRanks(8.0))
    assert len(taken) == 120


def test_an_estimate_counts_the_cores_of_every_machine_and_the_seconds_once(cell):
    phase = measure_training_energy(cell, panel(), train(Absent("no RAPL")), lambda: None, 10, TwoRanks(0.0))
    energy = phase.readings["energy_j"]
    assert energy.origin == "estimated"
    assert "seconds x 16 cores" in energy.source
    assert phase.readings["energy_counter_j"] == Absent("no RAPL")


def test_an_energy_that_the_training_window_has_is_kept(cell):
    energy = measured(7.0, "J", "sum over 2 ranks")
    phase = measure_training_energy(cell, panel(0.1), train(energy), pytest.fail, 10, TwoRanks(5.0))
    assert phase.readings["energy_j"] == energy
