"""How long a user waits: ``wattention --help`` (goal 0.3 s) and the default ``wattention compare`` (goal 180 s)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

from results import write_result


def seconds(*words: str) -> float:
    """Time one command in a fresh process, output discarded."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "wattention", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began


def main() -> None:
    """Measure and write benchmarks/results/commands.json."""
    helps = [seconds("--help") for _ in range(11)]
    compare = seconds("compare")
    print(f"wattention --help: {statistics.median(helps):.3f} s (goal 0.3)")
    print(f"wattention compare: {compare:.0f} s (goal 180)")
    write_result("commands", {"help_s": {"median": statistics.median(helps), "all": helps}, "compare_s": compare})


if __name__ == "__main__":
    main()
