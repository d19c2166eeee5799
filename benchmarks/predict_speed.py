"""How long a prediction takes: first of all, for a new length of a known model, on another device, and again.

The goal is 100 ms a point, warm: the process has answered other points before. What repeats (traces, plans, fits of a
profile) is kept; a new length has to be traced anew.

Run: python benchmarks/predict_speed.py
"""

from __future__ import annotations

import statistics
import time

from results import write_result
from wattention.analysis.predict import PredictionQuery
from wattention.core.run_spec import STUDY_MECHANISMS
from wattention.core.specs import ModelSpec
from wattention.study.prediction import predict


def seconds_of(mechanism: str, tokens: int, hardware: str) -> float:
    model = ModelSpec.preset("gpt2", context=8192)
    query = PredictionQuery(
        model=model, mechanism=mechanism, tokens=tokens, batch=8, precision="bfloat16", hardware=hardware
    )
    start = time.perf_counter()
    predict(query)
    return time.perf_counter() - start


def main() -> None:
    result = {}
    for mechanism in STUDY_MECHANISMS:
        first = seconds_of(mechanism, 1024, "a100-80")
        lengths = [seconds_of(mechanism, tokens, "a100-80") for tokens in (512, 2048, 4096)]
        devices = [seconds_of(mechanism, 1024, device) for device in ("h100-sxm", "rtx-4090", "l4")]
        again = [seconds_of(mechanism, 1024, "a100-80") for _ in range(5)]
        times = {"first": first, "new_length": statistics.median(lengths), "new_device": statistics.median(devices),
                 "again": statistics.median(again)}  # fmt: skip
        result[mechanism] = times
        print(mechanism.ljust(16), "  ".join(f"{name} {seconds * 1e3:7.1f} ms" for name, seconds in times.items()))
    write_result("predict_speed", {"seconds": result, "goal_s": 0.1})


if __name__ == "__main__":
    main()
