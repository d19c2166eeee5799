"""How long one planner query takes.

A query plans every schedule, predicts its exact counts and finds the bounds of its class. The mapper AccelForge 1.0.467
takes 38 to 143 s for the same backward question (N = 1024, d = 64; recorded on another machine, not measured here: its
own search is not started by this script).

Run: python benchmarks/planner.py
"""

from __future__ import annotations

import statistics
import time

from results import write_result
from wattention.iocomplexity.planning.planner import plan
from wattention.iocomplexity.problem.attention import attention_problem

QUERY_LIMIT_S = 0.050
RECORDED_MAPPER_S = (38.0, 143.0)
MASKS = ("dense", "causal", "window:256", "bigbird:block=64,global=2,window=3,random=3")


def query_s(problem_of: str, tokens: int, head_dim: int, fast_words: int, direction: str) -> float:
    """Seconds of one query on a fresh problem: building the mask and its tables is part of it."""
    start = time.perf_counter()
    problem = attention_problem(tokens=tokens, head_dim=head_dim, mask=problem_of)
    ranked = plan(problem, fast_words, direction=direction).ranked  # type: ignore[arg-type]
    assert all(planned.bound is not None for planned in ranked)  # bounds are found when asked for
    return time.perf_counter() - start


def main() -> None:
    queries = {}
    query_s("dense", 256, 32, 4096, "forward")  # imports of all schedules and bounds
    query_s("dense", 256, 32, 4096, "backward")
    print(f"{'query':62} median   worst")
    for mask in MASKS:
        for tokens, head_dim, direction in ((1024, 64, "forward"), (1024, 64, "backward"), (16384, 128, "backward")):
            times = [query_s(mask, tokens, head_dim, m, direction) for m in (4162, 16641, 66304) for _ in range(3)]
            label = f"{direction}, {tokens} tokens, head dim {head_dim}, {mask}"
            queries[label] = {"median_s": statistics.median(times), "worst_s": max(times)}
            print(f"{label:62} {statistics.median(times) * 1e3:5.1f} ms {max(times) * 1e3:5.1f} ms")
    backward = [query_s("dense", 1024, 64, m, "backward") for m in (4162, 16641, 66304, 262339) for _ in range(5)]
    faster = RECORDED_MAPPER_S[0] / statistics.median(backward)
    print(f"\nlimit {QUERY_LIMIT_S * 1e3:.0f} ms; {faster:.0f} times faster than a mapper's recorded 38 s")
    write_result("planner", {"queries": queries, "times_faster_than_a_recorded_mapper": faster})


if __name__ == "__main__":
    main()
