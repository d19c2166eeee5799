"""Measured against predicted on this machine: memory, time and ranking of training steps over mechanisms and lengths.

Every point trains a real model on real text, under the allocator, thread and spin settings of a cell. Points are
visited in rounds, each in an order drawn anew, so that a slow moment of the machine does not hit one mechanism alone;
every finished visit is on disk, and a later call goes on where this one stopped. The prediction reads nothing but the
profile that ``wattention calibrate`` wrote, whose timings are of single operators at sizes fixed beforehand.

Goals: memory within 5 %; time within 15 % in the median; of two mechanisms whose measured times differ by more than
10 %, the prediction names the faster one in at least 90 % of the pairs.

Run: wattention calibrate -o my-machine.toml
     python benchmarks/predict.py --profile my-machine.toml --minutes 20
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import stored, write_result
from wattention.core.run_spec import STUDY_MECHANISMS
from wattention.core.specs import DataSpec, ModelSpec, TrainingSpec
from wattention.study.local import MALLOC_SETTINGS, SPIN_COUNT, available_threads

MODELS: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "heads": 4, "width": 128, "vocabulary": 256},
    "small": {"layers": 4, "heads": 4, "width": 256, "vocabulary": 2048},
    "medium": {"layers": 6, "heads": 6, "width": 384, "vocabulary": 8192},
}
LENGTHS = (256, 512, 1024, 2048, 4096)
LEAST_STEPS, MOST_STEPS, LEAST_S, WARM_S = 3, 25, 0.5, 0.3
"""Steps of a visit: enough for a median, and long enough to tell what other processes used."""
DISTURBED = 0.05
"""Share of the machine used by others from which a visit counts only where a point has no better one."""
CLEAR = 0.10
"""Relative difference from which a pair has a right order."""


@dataclass(frozen=True)
class Point:
    """One model with one mechanism at one length."""

    model: str
    mechanism: str
    tokens: int

    @property
    def batch(self) -> int:
        """Two sequences, one where two would take too long."""
        return 2 if self.tokens <= 1024 else 1

    @property
    def key(self) -> str:
        """Its name in the result."""
        return f"{self.model} T={self.tokens} B={self.batch} {self.mechanism}"

    @property
    def spec(self) -> ModelSpec:
        """The model, with a context of just this length."""
        return ModelSpec(context=self.tokens, **MODELS[self.model])


def measure(point: Point, *, with_memory: bool) -> dict[str, Any]:
    """Return one visit: seconds of a few steps after some others, what others used, the peak where asked for."""
    from wattention.data.task import open_batches
    from wattention.lab.training import Trainer
    from wattention.mechanisms.base import MECHANISMS
    from wattention.meters.tensor_memory import measure_peak_tensor_bytes
    from wattention.meters.window import Panel
    from wattention.model.gpt2 import GPT2

    data = DataSpec(max_bytes=2**20, heldout_tokens=4096)
    batches = open_batches(data, vocabulary=point.spec.vocabulary, batch=point.batch, tokens=point.tokens, order_seed=0)
    training = TrainingSpec(batch=point.batch, steps=1000)
    trainer = Trainer(GPT2(point.spec, MECHANISMS.load(point.mechanism)), batches, training)
    warm = time.monotonic() + WARM_S
    for number in itertools.count():
        if number >= 2 and time.monotonic() > warm:
            break
        trainer.step()
    seconds: list[float] = []
    with Panel.open("cpu") as panel:
        window = panel.window()
        with window:
            while len(seconds) < LEAST_STEPS or (sum(seconds) < LEAST_S and len(seconds) < MOST_STEPS):
                start = time.perf_counter()
                trainer.step()
                seconds.append(time.perf_counter() - start)
    others = window.readings["other_cpu_share"].to_json().get("value")
    found: dict[str, Any] = {"step_s": seconds, "others_share": others}
    if with_memory:
        found["peak_bytes"] = measure_peak_tensor_bytes(trainer.step).to_json()["value"]
    return found


def predict(point: Point, profile: str) -> dict[str, float]:
    """Return the predicted seconds and peak bytes of a step."""
    from wattention.analysis.predict import PredictionQuery
    from wattention.study.prediction import predict as predict_point

    query = PredictionQuery(
        model=point.spec, mechanism=point.mechanism, tokens=point.tokens, batch=point.batch, hardware=profile
    )
    found = predict_point(query)
    return {"step_s": found.train.time.to_json()["value"], "peak_bytes": found.memory.peak.to_json()["value"]}


def visit(points: list[Point], kept: dict[str, Any], *, rounds: int, end: float, save: Any) -> None:
    """Visit every point in each round until time is up, but those that already have so many undisturbed visits."""
    for number in range(rounds):
        order = [p for p in points if len(_quiet(kept.get(p.key, {"visits": []})["visits"])) <= number]
        random.Random(number).shuffle(order)
        for point in order:
            if time.monotonic() > end:
                return
            entry = kept.setdefault(point.key, {"visits": []})
            found = measure(point, with_memory="peak_bytes" not in entry)
            if "peak_bytes" in found:
                entry["peak_bytes"] = found.pop("peak_bytes")
            entry["visits"].append(found)
            print(
                f"round {number + 1}: {point.key}: {_seconds(entry):.4f} s, others {found['others_share']}", flush=True
            )
            save()


def summarise(points: list[Point], kept: dict[str, Any]) -> dict[str, Any]:
    """Return the errors over all measured points, and how many clear pairs are ranked right."""
    seen = [p for p in points if "predicted" in kept.get(p.key, {})]
    time_errors = {p.key: kept[p.key]["predicted"]["step_s"] / _seconds(kept[p.key]) - 1 for p in seen}
    memory_errors = {p.key: kept[p.key]["predicted"]["peak_bytes"] / kept[p.key]["peak_bytes"] - 1 for p in seen}
    right = pairs = 0
    wrong = []
    for a, b in itertools.combinations(seen, 2):
        if (a.model, a.tokens) != (b.model, b.tokens):
            continue
        measured = math.log(_seconds(kept[a.key]) / _seconds(kept[b.key]))
        if abs(measured) > math.log1p(CLEAR):
            predicted = math.log(kept[a.key]["predicted"]["step_s"] / kept[b.key]["predicted"]["step_s"])
            pairs += 1
            right += measured * predicted > 0
            if measured * predicted <= 0:
                wrong.append(
                    f"{a.key} / {b.key}: measured {math.exp(measured):.3f}, predicted {math.exp(predicted):.3f}"
                )
    absolute = sorted(abs(e) for e in time_errors.values())
    return {
        "points": len(seen),
        "points_without_an_undisturbed_visit": sum(not _quiet(kept[p.key]["visits"]) for p in seen),
        "visits": sum(len(kept[p.key]["visits"]) for p in seen),
        "disturbed_visits": sum(len(kept[p.key]["visits"]) - len(_quiet(kept[p.key]["visits"])) for p in seen),
        "time_error_median": statistics.median(absolute) if absolute else None,
        "time_error_bias_median": statistics.median(time_errors.values()) if absolute else None,
        "time_error_worst": max(time_errors.items(), key=lambda kv: abs(kv[1]), default=None),
        "memory_error_worst": max(memory_errors.items(), key=lambda kv: abs(kv[1]), default=None),
        "clear_pairs": pairs,
        "clear_pairs_right": right / pairs if pairs else None,
        "wrong_pairs": wrong,
        "goals": {"memory": 0.05, "time_median": 0.15, "pairs_right": 0.9},
    }


def _quiet(visits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The visits during which others left the machine alone."""
    return [one for one in visits if one["others_share"] is not None and one["others_share"] <= DISTURBED]


def _seconds(entry: dict[str, Any]) -> float:
    """The median step of the undisturbed visits; of all where none was undisturbed."""
    return statistics.median(s for one in _quiet(entry["visits"]) or entry["visits"] for s in one["step_s"])


def _settle(threads: int) -> None:
    """Start again under the settings of a cell: libraries read them when they load."""
    wanted = {**MALLOC_SETTINGS["keep"], "GOMP_SPINCOUNT": str(SPIN_COUNT), "OMP_NUM_THREADS": str(threads)}
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True, help="what wattention calibrate wrote on this machine")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--mechanisms", default=",".join(STUDY_MECHANISMS))
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    args = parser.parse_args()
    _settle(available_threads())
    points = [
        Point(model, mechanism, int(tokens))
        for model in args.models.split(",")
        for tokens in args.lengths.split(",")
        for mechanism in args.mechanisms.split(",")
    ]
    kept: dict[str, Any] = {} if args.fresh else stored("predict").get("measured", {})
    everything = [Point(m, name, t) for m in MODELS for t in LENGTHS for name in STUDY_MECHANISMS]

    def save() -> None:
        write_result("predict", {"profile": Path(args.profile).read_text().splitlines()[1], "measured": kept})

    if args.minutes > 0:  # what a process does first is slow, whatever it is
        measure(points[0], with_memory=False)
    end = time.monotonic() + 60 * args.minutes
    visit(points, kept, rounds=args.rounds, end=end, save=save)
    for point in everything:
        if point.key in kept:
            kept[point.key]["predicted"] = predict(point, args.profile)
    summary = summarise(everything, kept)
    conditions = Path(args.profile).read_text().partition("[conditions]")[2].partition("\n\n")[0].strip()
    write_result("predict", {"profile": conditions, "summary": summary, "measured": kept})
    for point in everything:
        if point.key in kept:
            entry = kept[point.key]
            ratios = [
                entry["predicted"][k] / v for k, v in (("step_s", _seconds(entry)), ("peak_bytes", entry["peak_bytes"]))
            ]
            print(f"{point.key:38} {_seconds(entry):8.4f} s  predicted x{ratios[0]:.3f}   memory x{ratios[1]:.4f}")
    for key, value in summary.items():
        print(f"{key}: {value}")


if __name__ == "__main__":
    main()
