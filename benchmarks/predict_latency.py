"""Measured against predicted on this machine: the time of a prompt and of a token after it.

As predict.py, for inference, over mechanisms and lengths: untrained models (their numbers do not change the work) of
three sizes, float32, one sequence. A prompt is fed at once, then tokens one at a time from the cache; first a prompt
that is not counted. Points are visited in rounds, each in an order drawn anew; the prediction reads nothing but the
profile that ``wattention calibrate`` wrote.

No goal was set for these: what is found is printed.

Run: wattention calibrate -o my-machine.toml
     python benchmarks/predict_latency.py --profile my-machine.toml --rounds 2
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

from predict import CLEAR, DISTURBED, MODELS, _settle
from results import write_result
from wattention.core.run_spec import STUDY_MECHANISMS
from wattention.core.specs import ModelSpec
from wattention.study.local import available_threads

LENGTHS = (256, 1024, 4096)
DECODED = 16
PROMPTS, PROMPTS_S = 3, 0.3
"""Least prompts of a visit, and least seconds of them together."""

Point = tuple[str, str, int]
Visit = dict[str, Any]


def measure(model: str, mechanism: str, tokens: int) -> Visit:
    """Return one visit: seconds of prompts and of tokens after them, and what others used of the machine."""
    import torch

    from wattention.mechanisms.base import MECHANISMS
    from wattention.meters.window import Panel
    from wattention.model.gpt2 import GPT2

    spec = ModelSpec(context=tokens + DECODED, **MODELS[model])
    net = GPT2(spec, MECHANISMS.load(mechanism)).eval()
    prompt = torch.randint(spec.vocabulary, (1, tokens))
    visit: Visit = {"prefill_s": [], "decode_s": []}

    def feed(kind: str, fed: Any, caches: Any) -> None:
        start = time.perf_counter()
        net.feed(fed, caches)
        visit[kind].append(time.perf_counter() - start)

    with torch.inference_mode(), Panel.open("cpu") as panel:
        net.feed(prompt, net.new_caches(1))
        with (window := panel.window()):
            while len(visit["prefill_s"]) < PROMPTS or sum(visit["prefill_s"]) < PROMPTS_S:
                caches = net.new_caches(1)
                feed("prefill_s", prompt, caches)
                for at in range(DECODED):
                    feed("decode_s", prompt[:, at : at + 1], caches)
    visit["others_share"] = window.readings["other_cpu_share"].to_json().get("value")
    return visit


def predict(point: Point, profile: str) -> dict[str, float]:
    """Return the predicted seconds of a prompt and of a token after it."""
    from wattention.analysis.predict import PredictionQuery
    from wattention.study.prediction import predict as predict_point

    model, mechanism, tokens = point
    spec = ModelSpec(context=tokens, **MODELS[model])
    found = predict_point(PredictionQuery(model=spec, mechanism=mechanism, tokens=tokens, batch=1, hardware=profile))
    return {"prefill_s": found.prefill.time.to_json()["value"], "decode_s": found.decode.time.to_json()["value"]}


def seconds(visits: list[Visit], kind: str) -> float:
    """The median over the undisturbed visits; over all where none was undisturbed."""
    quiet = [one for one in visits if one["others_share"] is not None and one["others_share"] <= DISTURBED]
    return statistics.median(s for one in quiet or visits for s in one[kind])


def summarise(measured: dict[Point, dict[str, float]], predicted: dict[Point, dict[str, float]]) -> dict[str, Any]:
    """Return the errors, and how many clear pairs are ranked right, of prompts and of tokens after them."""
    summary: dict[str, Any] = {}
    for kind in ("prefill_s", "decode_s"):
        errors = {point: predicted[point][kind] / measured[point][kind] - 1 for point in measured}
        worst = max(errors, key=lambda point: abs(errors[point]))
        pairs = right = 0
        for a, b in itertools.combinations(measured, 2):
            found = math.log(measured[a][kind] / measured[b][kind])
            if (a[0], a[2]) == (b[0], b[2]) and abs(found) > math.log1p(CLEAR):
                pairs += 1
                right += found * math.log(predicted[a][kind] / predicted[b][kind]) > 0
        summary[kind.removesuffix("_s")] = {
            "points": len(errors), "error_median": statistics.median(map(abs, errors.values())),
            "bias_median": statistics.median(errors.values()), "worst": [" ".join(map(str, worst)), errors[worst]],
            "clear_pairs": pairs, "clear_pairs_right": right / pairs if pairs else None,
        }  # fmt: skip
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True, help="what wattention calibrate wrote on this machine")
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    _settle(available_threads())
    points: list[Point] = list(itertools.product(MODELS, STUDY_MECHANISMS, LENGTHS))
    visits: dict[Point, list[Visit]] = {point: [] for point in points}
    measure(*points[0])  # what a process does first is slow, whatever it is
    for number in range(args.rounds):
        random.Random(number).shuffle(points)
        for point in points:
            visits[point].append(measure(*point))
    measured = {p: {kind: seconds(found, kind) for kind in ("prefill_s", "decode_s")} for p, found in visits.items()}
    predicted = {point: predict(point, args.profile) for point in visits}
    for point in visits:
        ratios = "   ".join(
            f"{kind} {measured[point][kind]:8.5f} predicted x{predicted[point][kind] / measured[point][kind]:.3f}"
            for kind in ("prefill_s", "decode_s")
        )
        print(f"{' '.join(map(str, point)):28} {ratios}")
    summary = summarise(measured, predicted)
    for kind, found in summary.items():
        print(kind, found)
    conditions = Path(args.profile).read_text().partition("[conditions]")[2].partition("\n\n")[0].strip()
    rows = {
        " ".join(map(str, p)): {"measured": measured[p], "predicted": predicted[p],
                                "others_share": [one["others_share"] for one in visits[p]]}
        for p in visits
    }  # fmt: skip
    write_result("predict_latency", {"profile": conditions, "summary": summary, "points": rows})


if __name__ == "__main__":
    main()
