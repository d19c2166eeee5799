"""Tokens per second of one model on 1 and 2 ranks, by ddp and fsdp, one thread a rank, gloo on this machine.

On a CPU ranks compete for memory bandwidth and cores with each other; the figures say what spreading costs, not what
a cluster of GPUs gains. Configurations are interleaved over the rounds, each a comparison of its own under torchrun.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from results import write_result

ROUNDS, STEPS, BATCH, CONTEXT = 2, 14, 4, 256
CONFIGURATIONS = (("none", 1), ("ddp", 2), ("fsdp", 2))


def tokens_per_s(mode: str, ranks: int, folder: Path) -> float:
    """Run one small comparison and return the tokens per second of its training window."""
    command = ["-m", "wattention", "compare", "-m", "sdpa", "--out", str(folder), "--blocks", "1", "--lengths", "none"]
    command += ["--steps", str(STEPS), "--batch", str(BATCH), "--context", str(CONTEXT), "--threads", "1"]
    command += ["--set", "data.heldout_tokens=1024", "--set", "data.max_bytes=500000"]
    if ranks > 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [*torchrun, *command, "--parallel", mode]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    lines = map(json.loads, (folder / "records.jsonl").read_text().splitlines())
    readings = next(one for one in lines if one["kind"] == "train")["phases"]["train"]["readings"]
    return float(readings["tokens"]["value"] / readings["time_s"]["value"])


def main() -> None:
    """Measure and write benchmarks/results/ranks.json."""
    found: dict[str, list[float]] = {f"{mode} x {ranks}": [] for mode, ranks in CONFIGURATIONS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            for mode, ranks in CONFIGURATIONS:
                speed = tokens_per_s(mode, ranks, Path(folder) / f"{mode}-{number}")
                found[f"{mode} x {ranks}"].append(speed)
    one = statistics.median(found["none x 1"])
    entries: dict[str, dict[str, Any]] = {}
    for name, speeds in found.items():
        median = statistics.median(speeds)
        entries[name] = {"tokens_per_s": median, "rounds": speeds, "over_one_process": median / one}
        print(f"{name:10} {median:10.0f} tokens/s  x{median / one:.2f} of one process")
    setting = {"preset": "tiny", "context": CONTEXT, "batch": BATCH, "steps": STEPS, "threads_a_rank": 1}
    write_result("ranks", {"setting": setting, "configurations": entries})


if __name__ == "__main__":
    main()
