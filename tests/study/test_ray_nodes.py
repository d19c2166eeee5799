"""A Ray cluster of three nodes on this machine, one of which is killed; and random kills over 200 cells."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from fakes.cells import executions, short_cell, short_run
from fakes.study import Silent
from wattention.study.on_ray import RayLauncher
from wattention.study.ray_session import import_ray, usable_amdsmi
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder

TESTS = Path(__file__).parents[1]


@pytest.fixture
def cluster(monkeypatch):
    """A head that runs no blocks, and two nodes that run one at a time; a third one comes when it is asked for."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # a token would be written into the home folder
    with usable_amdsmi():
        ray = import_ray()
        from ray.cluster_utils import Cluster

        quick = {
            "health_check_period_ms": 1000,
            "health_check_failure_threshold": 5,
            "health_check_initial_delay_ms": 0,
        }
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, "_system_config": quick},
        )
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        try:
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


class Reaper(Silent):
    """Calls ``deed`` with the record after every so many cells."""

    def __init__(self, deed, *, at):
        super().__init__()
        self.deed, self.at = deed, set(at)

    def cell_finished(self, cell, record):
        super().cell_finished(cell, record)
        if len(self.ran) in self.at:
            self.deed(record)


def run_on(cluster, folder, spec, watcher):
    launcher = RayLauncher(address=cluster.address, work=short_cell)
    return run_comparison(RunFolder(folder), spec, launcher, watcher, resume=False)


def test_a_node_that_dies_costs_only_the_cell_it_was_running(cluster, tmp_path):
    spec = short_run(tmp_path / "ledger", blocks=2, mechanisms=4, sleep_s=0.3)
    doomed = next(iter(cluster.worker_nodes))

    def kill_node(_record):
        cluster.remove_node(doomed, allow_graceful=False)

    watcher = Reaper(kill_node, at=[5])
    run = run_on(cluster, tmp_path / "r", spec, watcher)
    assert len(watcher.ran) == len(set(watcher.ran)) == watcher.planned == 4 + 2 * 4
    assert {record.status for record in run.records} == {"ok"}
    assert run.damage == ()
    assert sum(executions(tmp_path / "ledger").values()) <= 2 * 8 + 1, "a cell may have ended on the node as it died"


@pytest.mark.chaos
def test_two_hundred_cells_with_random_kills_end_in_two_hundred_records(cluster, tmp_path):
    """Workers die by kill -9 nine times, and a node dies once and is replaced."""
    spec = short_run(tmp_path / "ledger", blocks=9, mechanisms=20, sleep_s=0.02)
    dice = random.Random(8)
    doomed = next(iter(cluster.worker_nodes))
    node_at = 90

    def kill(record):
        if len(watcher.ran) == node_at:
            cluster.remove_node(doomed, allow_graceful=False)
            cluster.add_node(num_cpus=1)
        else:
            try:
                os.kill(record.facts["launcher"], signal.SIGKILL)
            except ProcessLookupError:
                time.sleep(0)  # its block had just ended

    watcher = Reaper(kill, at=[node_at, *dice.sample(range(5, 195), 9)])
    run = run_on(cluster, tmp_path / "r", spec, watcher)
    assert watcher.planned == 200
    assert len(watcher.ran) == len(set(watcher.ran)) == 200
    assert len({record.key for record in run.records} & {*watcher.ran}) == 200
    assert {record.status for record in run.records} == {"ok"}
    assert run.damage == ()
