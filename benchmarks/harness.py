"""What the harness costs: the measured training loop against a bare loop over the same model, interleaved.

The bare loop only calls ``Trainer.step``. The measured one is a training cell's own: window, meters, marks, progress.
Both run the same steps of the same model in turns; the ratio of their medians is the overhead (goal: at most 1.01).
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from results import write_result
from wattention.core.records import CellKey
from wattention.core.run_spec import CellSpec
from wattention.lab.cells.build import build_trainer
from wattention.lab.cells.findings import load_choice
from wattention.lab.cells.train import run_training_steps
from wattention.lab.phases.stage import Stage
from wattention.meters.window import Panel
from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.local import available_threads

ROUNDS, STEPS = 12, 12


def main() -> None:
    """Measure and write benchmarks/results/harness.json."""
    threads = available_threads()
    torch.set_num_threads(threads)
    layer: dict[str, Any] = {"mechanisms": ["sdpa"], "training": {"steps": STEPS}, "measure": {"warmup_steps": 0}}
    run = build_run_spec([DEFAULTS, layer], [], threads=threads)
    cell = CellSpec(run=run, key=CellKey(kind="train", mechanism="sdpa", block=0), order=0)
    mechanism, config = load_choice(cell)
    trainer = build_trainer(cell, mechanism, config)
    with Panel.open("cpu") as panel:
        stage = Stage(cell=cell, panel=panel, progress=lambda **event: None)

        def bare() -> None:
            for _ in range(STEPS):
                trainer.step()

        def measured() -> None:
            run_training_steps(stage, trainer, STEPS)

        loops = {"bare": bare, "measured": measured}
        times: dict[str, list[float]] = {name: [] for name in loops}
        for loop in loops.values():
            loop()
        for _ in range(ROUNDS):
            for name, loop in loops.items():
                began = time.perf_counter()
                loop()
                times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = [m / b for m, b in zip(times["measured"], times["bare"], strict=True)]
    overhead = statistics.median(ratios)
    print(f"measured over bare loop: {overhead:.4f} (median of {ROUNDS} pairs of {STEPS} steps); goal 1.01")
    write_result("harness", {"steps": STEPS, "rounds": ROUNDS, "median_s": medians, "median_of_ratios": overhead})


if __name__ == "__main__":
    main()
