"""What Ray costs a cell, and how the number of workers changes it: 1, 2 and 4 blocks at a time.

Cells sleep 10 ms and end, each in a process of its own as always. Three figures a number of workers: the same cells
under the local launcher (process start and all), under Ray after every worker has started, and the whole launch. The
overhead is what Ray adds to a cell beyond what the local launcher takes for it (goal: at most 50 ms).

Run: python benchmarks/ray_scale.py [WORKERS]...
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a cluster of this process alone, gone in a minute

import itertools

from fakes.cells import short_cell, short_run
from results import stored, write_result
from wattention.study.grid import plan_blocks
from wattention.study.launcher import Launcher, Nobody
from wattention.study.local import LocalLauncher
from wattention.study.on_ray import RayLauncher
from wattention.study.ray_session import import_ray, usable_amdsmi

CELLS_A_BLOCK, SLEEP_S, GOAL_S = 40, 0.01, 0.050


def intervals(launcher: Launcher, folder: Path, blocks: int) -> tuple[float, dict[int, list[float]]]:
    """Seconds of the launch, and by block the seconds from each record to the next."""
    run = short_run(folder / "ledger", blocks=blocks, mechanisms=CELLS_A_BLOCK, sleep_s=SLEEP_S)
    (folder / "logs").mkdir(exist_ok=True)
    marks: dict[int, list[float]] = {}
    began = time.perf_counter()
    for block, _ in launcher.launch(plan_blocks(run, (), folder=folder), Nobody()):
        marks.setdefault(block.number, []).append(time.perf_counter())
    gaps = {number: [b - a for a, b in itertools.pairwise(times)] for number, times in marks.items()}
    return time.perf_counter() - began, gaps


def measure(workers: int, local_s: float) -> dict[str, Any]:
    """Launch as many blocks as there are workers, all at once."""
    with usable_amdsmi(), tempfile.TemporaryDirectory() as name:
        ray = import_ray()
        ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
        try:
            whole_s, gaps = intervals(RayLauncher(work=short_cell), Path(name), workers)
        finally:
            ray.shutdown()
    cells = sum(len(block) + 1 for block in gaps.values())
    cell_s = statistics.median(gap for block in gaps.values() for gap in block)
    return {
        "workers": workers, "cells": cells, "whole_s": whole_s, "cells_per_s": cells / whole_s,
        "cell_s": cell_s, "overhead_per_cell_s": cell_s - local_s,
    }  # fmt: skip


def main() -> None:
    """Measure and write benchmarks/results/ray_scale.json."""
    main_file = sys.modules["__main__"].__file__
    sys.modules["__main__"].__file__ = None  # else every cell imports this script again, which no command of ours does
    with tempfile.TemporaryDirectory() as name:
        _, gaps = intervals(LocalLauncher(threads=1, malloc="default", work=short_cell), Path(name), 1)
    sys.modules["__main__"].__file__ = main_file
    local_s = statistics.median(gaps[0])
    result = {key: value for key, value in stored("ray_scale").items() if key.startswith("workers_")}
    print(f"local: {local_s * 1e3:.1f} ms a cell, process start and {SLEEP_S * 1e3:.0f} ms of sleep included")
    for workers in map(int, sys.argv[1:] or ("1", "2", "4")):
        found = measure(workers, local_s)
        result[f"workers_{workers}"] = {**found, "local_cell_s": local_s}
        cell_ms, overhead_ms = found["cell_s"] * 1e3, found["overhead_per_cell_s"] * 1e3
        print(f"{workers} workers: {cell_ms:.1f} ms a cell, {overhead_ms:+.1f} ms by Ray; goal {GOAL_S * 1e3:.0f} ms")
    write_result("ray_scale", result)


if __name__ == "__main__":
    main()
