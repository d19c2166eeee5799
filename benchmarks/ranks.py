"""Tokens per second of one model on 1 and 2 ranks, by ddp and fsdp, one thread a rank, gloo on this machine.

On a CPU ranks compete for memory bandwidth and cores with each other; the figures say what spreading costs, not what
a cluster of GPUs gains. Each configuration is a comparison of its own, under torchrun where there are several ranks;
quartiles are those of its steps.
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

STEPS, BATCH, CONTEXT = 42, 4, 256
CONFIGURATIONS = (("none", 1), ("ddp", 2), ("fsdp", 2))


def step_seconds(mode: str, ranks: int, folder: Path) -> list[float]:
    """Run one small comparison and return the seconds of its measured training steps."""
    command = ["-m", "wattention", "compare", "-m", "sdpa", "--out", str(folder), "--blocks", "1", "--lengths", "none"]
    command += ["--steps", str(STEPS), "--batch", str(BATCH), "--context", str(CONTEXT), "--threads", "1"]
    command += ["--set", "data.heldout_tokens=1024", "--set", "data.max_bytes=500000"]
    if ranks > 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [*torchrun, *command, "--parallel", mode]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    lines = map(json.loads, (folder / "records.jsonl").read_text().splitlines())
    return list(next(one for one in lines if one["kind"] == "train")["phases"]["train"]["samples"]["step_s"])


def main() -> None:
    """Measure and write benchmarks/results/ranks.json."""
    entries: dict[str, dict[str, Any]] = {}
    one = None
    with tempfile.TemporaryDirectory() as folder:
        for mode, ranks in CONFIGURATIONS:
            low, median, high = statistics.quantiles(step_seconds(mode, ranks, Path(folder) / mode), n=4)
            tokens = BATCH * CONTEXT
            one = one or tokens / median
            entry = {"tokens_per_s": tokens / median, "quartiles": [tokens / high, tokens / low]}
            entries[f"{mode} x {ranks}"] = {**entry, "over_one_process": tokens / median / one}
            print(
                f"{mode:5} x {ranks} {tokens / median:8.0f} tokens/s [{tokens / high:.0f}, {tokens / low:.0f}] "
                f"x{tokens / median / one:.2f} of one process"
            )
    setting = {"preset": "tiny", "context": CONTEXT, "batch": BATCH, "steps": STEPS, "threads_a_rank": 1}
    write_result("ranks", {"setting": setting, "configurations": entries})


if __name__ == "__main__":
    main()
