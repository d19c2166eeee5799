"""How long a prediction takes: for a length nobody asked about before, for another device, and for the same again.

The goal is 100 ms a point, warm: the process has answered other points before. What repeats (traces, plans, fits of a
profile) is kept; a new length has to be traced and planned anew. Every mechanism is asked about lengths of its own, so
that none finds what another one left. Batches of 8 sequences, and of one, which may take another trace: one sequence
alone may be another program than several.

Tracing is Python from end to end, and the speed of a shared machine moves within the hour. So a plain Python loop is
timed in turns with the predictions, and each is also told in rounds of that loop, which move less.

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

LENGTHS = range(512, 4096, 512)
ROUNDS = 200_000


def seconds_of_a_round() -> float:
    """Time a plain Python loop: what this interpreter does on this machine at this moment."""
    start, total = time.perf_counter(), 0
    for number in range(ROUNDS):
        total += number
    return (time.perf_counter() - start) / ROUNDS


def seconds_of(mechanism: str, tokens: int, hardware: str, precision: str, batch: int = 8) -> float:
    model = ModelSpec.preset("gpt2", context=8192)
    query = PredictionQuery(
        model=model, mechanism=mechanism, tokens=tokens, batch=batch, precision=precision, hardware=hardware
    )
    start = time.perf_counter()
    predict(query)
    return time.perf_counter() - start


def main() -> None:
    result: dict[str, dict[str, dict[str, float]]] = {}
    in_rounds: dict[str, dict[str, float]] = {}
    loops = []
    for hardware, others, precision in (
        ("a100-80", ("h100-sxm", "rtx-4090", "l4"), "bfloat16"),
        ("cpu-server", ("cpu-desktop",), "float32"),
    ):
        result[hardware] = {}
        for place, mechanism in enumerate(STUDY_MECHANISMS):
            for batch in (8, 1):
                seconds_of(mechanism, 256 + 8 * place, hardware, precision, batch)
            lengths, rounds = [], []
            for tokens in LENGTHS:
                rounds.append(seconds_of_a_round())
                lengths.append(seconds_of(mechanism, tokens + 64 * place, hardware, precision))
            devices = [seconds_of(mechanism, LENGTHS[0] + 64 * place, device, precision) for device in others]
            again = [seconds_of(mechanism, LENGTHS[0] + 64 * place, hardware, precision) for _ in range(5)]
            single = [seconds_of(mechanism, tokens + 64 * place, hardware, precision, 1) for tokens in LENGTHS]
            times = {"new_length": statistics.median(lengths), "new_length_best": min(lengths),
                     "new_length_worst": max(lengths), "new_device": statistics.median(devices),
                     "again": statistics.median(again),
                     "new_length_one_sequence": statistics.median(single)}  # fmt: skip
            result[hardware][mechanism] = times
            loop = statistics.median(rounds)
            loops.append(loop)
            in_rounds.setdefault(hardware, {})[mechanism] = statistics.median(
                seconds / one for seconds, one in zip(lengths, rounds, strict=True)
            )
            print(
                f"{hardware:<11}{mechanism:<16}",
                "  ".join(f"{name} {seconds * 1e3:6.1f} ms" for name, seconds in times.items()),
                f"  a round of a Python loop {loop * 1e9:.0f} ns",
            )
    write_result(
        "predict_speed",
        {
            "seconds": result,
            "new_length_in_rounds_of_a_python_loop": in_rounds,
            "seconds_of_a_round": statistics.median(loops),
            "goal_s": 0.1,
        },
    )


if __name__ == "__main__":
    main()
