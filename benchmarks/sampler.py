"""What watching costs: training steps bare, inside a measuring window, and with the power sampler beside them.

Three loops over the same model take turns, in an order drawn anew each round, so that drift hits all alike:

    bare      the optimiser steps
    panel     the same inside one measuring window of this machine's meters
    sampler   the same while the sampling process reads a power sensor every 50 ms (it is stopped in the other two)

The goal for the sampler is at most 0.5 % of a step. Where the machine has no power sensor the process reads /proc/stat
at the same rate, which like a sensor is a file that the kernel computes when it is read; the result says so. The
median of the rounds' ratios has a bootstrap interval; the sampler's own CPU seconds stand beside it, because a shared
machine blurs the ratios and not those.

Run: python benchmarks/sampler.py
"""

from __future__ import annotations

import functools
import os
import random
import signal
import statistics
import time
from pathlib import Path
from typing import Any

from wattention.meters.power_process import PowerProcess, Reader
from wattention.meters.sampled_power import PERIOD_S, gpu_power_reader

ROUNDS, STEPS = 20, 3
GOAL = 0.005
STAT = Path("/proc/stat")


def stand_in_sensor() -> tuple[Reader, str]:
    """A sensor that costs what reading a kernel file does, and shows no power."""
    return (lambda: float(STAT.read_text().split()[1])), f"stand-in: {STAT}; this machine has no power sensor"


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    import numpy as np

    draw = np.random.default_rng(0).choice(np.array(ratios), size=(4000, len(ratios)))
    low, high = np.quantile(np.median(draw, axis=1), [0.025, 0.975])
    return float(low), float(high)


def compare(times: dict[str, list[float]]) -> dict[str, Any]:
    """Median ratio to the bare loop, with its interval, printed and returned."""
    found: dict[str, Any] = {}
    for name in ("panel", "sampler"):
        ratios = [one / bare for one, bare in zip(times[name], times["bare"], strict=True)]
        low, high = interval(ratios)
        found[name] = {"median_of_ratios": statistics.median(ratios), "low": low, "high": high}
        print(f"{name:8} over bare: {found[name]['median_of_ratios']:.4f}  95 % [{low:.4f}, {high:.4f}]")
    return found


def main() -> None:
    # Not at the top: the sampling process imports this file too, and needs none of it.
    import torch

    from results import write_result
    from wattention.core.records import CellKey
    from wattention.core.run_spec import CellSpec
    from wattention.lab.cells.build import build_trainer
    from wattention.lab.cells.findings import load_choice
    from wattention.meters.window import Panel, synchronise_of
    from wattention.study.configure import DEFAULTS, build_run_spec
    from wattention.study.local import available_threads

    threads = available_threads()
    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer: dict[str, Any] = {"mechanisms": ["sdpa"], "training": {"steps": STEPS}, "measure": {"warmup_steps": 0}}
    run = build_run_spec([DEFAULTS, layer, {"device": device}], [], threads=threads)
    cell = CellSpec(run=run, key=CellKey(kind="train", mechanism="sdpa", block=0), order=0)
    trainer = build_trainer(cell, *load_choice(cell))
    synchronise = synchronise_of(device)

    def timed() -> float:
        began = time.perf_counter()
        for _ in range(STEPS):
            trainer.step()
        synchronise()
        return time.perf_counter() - began

    times: dict[str, list[float]] = {"bare": [], "panel": [], "sampler": []}
    used_s = sampled_s = 0.0
    order = random.Random(0)
    names = ("clock", "cpu", "rss", "disturbance", "energy", "gpu_state")  # all but the sampler
    process = PowerProcess(
        functools.partial(gpu_power_reader, 0) if device == "cuda" else stand_in_sensor, period_s=PERIOD_S
    )
    try:
        with Panel.open(device, names) as panel:
            for number in range(ROUNDS + 1):  # the first round is warm-up
                for name in order.sample(sorted(times), len(times)):
                    os.kill(process.pid, signal.SIGCONT if name == "sampler" else signal.SIGSTOP)
                    before_s = process.cpu_s()
                    if name == "panel":
                        with panel.window():
                            seconds = timed()
                    else:
                        seconds = timed()
                    if name == "sampler":
                        used_s, sampled_s = used_s + process.cpu_s() - before_s, sampled_s + seconds
                    if number:
                        times[name].append(seconds)
    finally:
        os.kill(process.pid, signal.SIGCONT)
        process.close()
    found = compare(times)
    share = used_s / sampled_s / threads
    print(f"the sampling process used {share:.3%} of {threads} cores (goal {GOAL:.1%}); sensor: {process.sensor}")
    write_result(
        "sampler",
        {
            "device": device,
            "rounds": ROUNDS,
            "steps_a_round": STEPS,
            "period_s": PERIOD_S,
            "sensor": process.sensor,
            "goal": GOAL,
            "median_s": {name: statistics.median(values) for name, values in times.items()},
            "over_bare": found,
            "sampler_cpu_share_of_all_cores": share,
        },
    )


if __name__ == "__main__":
    main()
