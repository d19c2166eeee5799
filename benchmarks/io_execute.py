"""How fast the memory machine runs a schedule: with numbers and checked against float64, and for its counts alone.

FlashAttention-2 forward, N = 1024, d = 64, M = 16384 words: the run with numbers must take less than 5 s.

Run: python benchmarks/io_execute.py
"""

from __future__ import annotations

import time

from results import write_result
from wattention.iocomplexity.execution.execute import execute, verify
from wattention.iocomplexity.problem.attention import attention_problem
from wattention.iocomplexity.schedules.base import SCHEDULES

TOKENS, HEAD_DIM, FAST_WORDS, LIMIT_S = 1024, 64, 16384, 5.0


def main() -> None:
    problem, schedule = attention_problem(tokens=TOKENS, head_dim=HEAD_DIM), SCHEDULES.load("flash2")
    start = time.perf_counter()
    result = verify(schedule, problem, FAST_WORDS)
    verified_s = time.perf_counter() - start
    start = time.perf_counter()
    execute(schedule, problem, FAST_WORDS, numbers=False)
    counted_s = time.perf_counter() - start
    count = result.execution.count
    record = {
        "schedule": schedule.name, "tokens": TOKENS, "head_dim": HEAD_DIM, "fast_words": FAST_WORDS,
        "words": count.words, "counts_agree": result.counts_agree, "worst_error": result.worst_error,
        "verified_s": verified_s, "counted_s": counted_s, "ratio": verified_s / counted_s,
    }  # fmt: skip
    print(f"{schedule.title}, N = {TOKENS}, d = {HEAD_DIM}, M = {FAST_WORDS} words: {count.words} words moved")
    print(f"  with numbers, checked against float64   {verified_s:7.3f} s   worst error {result.worst_error:.1e}")
    print(f"  counts alone                            {counted_s:7.3f} s   {verified_s / counted_s:.0f}x faster")
    write_result("io_execute", record)
    if verified_s > LIMIT_S:
        raise SystemExit(f"slower than {LIMIT_S} s")


if __name__ == "__main__":
    main()
