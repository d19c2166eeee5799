"""Energy windows over ranks: all of them repeat one number of steps, and an estimate counts each machine once."""

import itertools

import pytest

from wattention.core.quantities import Absent, counted, measured
from wattention.core.records import CellKey, Phase
from wattention.core.run_spec import CellSpec
from wattention.lab.parallel.one_process import OneProcess
from wattention.lab.phases.energy import EnergyWindows
from wattention.lab.phases.stage import Stage
from wattention.meters.base import OpenedMeters
from wattention.meters.simulated import DeviceTraits, SimulatedDevice
from wattention.meters.window import Panel
from wattention.study.configure import DEFAULTS, build_run_spec

CHUNK_OF_THE_OTHER_S = 0.5


class TwoRanks(OneProcess):
    """Rank 0 of two on two machines of 8 cores; the other one needs its own length of window and is slower."""

    size = 2
    cores = 16

    def __init__(self, others_need_s):
        self._others = itertools.chain([others_need_s], itertools.repeat(CHUNK_OF_THE_OTHER_S))

    def gather(self, item):
        return [item, next(self._others)]

    def merge(self, phase):
        energy = measured(100.0, "J", "both ranks")
        return Phase(readings={**phase.readings, "energy_j": energy}, samples=phase.samples, flags=phase.flags)


def windows(train_energy, others_need_s, *, counter):
    device = SimulatedDevice(DeviceTraits(work_s=0.1))
    run = build_run_spec([DEFAULTS, {"mechanisms": ["sdpa"], "parallel": "ddp", "ranks": 2}], [], threads=1)
    cell = CellSpec(run=run, key=CellKey(kind="train", mechanism="sdpa", block=0), order=0)
    panel = device.open_panel(sampled=False) if counter else Panel(OpenedMeters(opened=()), clock=device)
    stage = Stage(cell=cell, panel=panel, progress=lambda **_: None, spread=TwoRanks(others_need_s))
    stage.phases["train"] = Phase(
        readings={
            "energy_j": train_energy,
            "time_s": measured(2.0, "s", "slowest"),
            "cpu_s": measured(3.0, "s", "sum"),
            "tokens": counted(200, "token", "plan"),
        }
    )
    return EnergyWindows(stage=stage, clock=lambda: device.now_s, sleep=device.rest), device


@pytest.mark.parametrize("counter", [True, False], ids=["with a counter", "without one"])
def test_the_rank_that_needs_the_longest_window_decides_for_all(counter):
    energy, device = windows(Absent("too short"), 8.0, counter=counter)
    taken = []
    energy.of_training(lambda: (taken.append(1), device.work(1)), 10)
    assert energy.needed_s == 8.0
    assert len(taken) == 8.0 / CHUNK_OF_THE_OTHER_S  # every step of ours waits for the slower one
    phase = energy.stage.phases["energy"]
    assert phase.readings["tokens"].value == 10 * len(taken)
    assert phase.readings["energy_j"].value == 100.0


def test_an_estimate_counts_the_cores_of_every_machine_and_the_seconds_once():
    energy, _ = windows(Absent("no RAPL"), 0.0, counter=False)
    energy.of_training(pytest.fail, 10)
    phase = energy.stage.phases["energy"]
    assert phase.readings["energy_j"].origin == "estimated"
    assert "seconds x 16 cores" in phase.readings["energy_j"].source
    assert phase.readings["energy_counter_j"] == Absent("no RAPL")


def test_an_energy_that_the_training_window_has_is_kept():
    own = measured(7.0, "J", "sum over 2 ranks")
    energy, _ = windows(own, 5.0, counter=True)
    energy.of_training(pytest.fail, 10)
    assert energy.stage.phases["energy"].readings["energy_j"] == own
