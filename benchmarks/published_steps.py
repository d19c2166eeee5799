"""Step times that others published against the prediction from data sheets, which no unfused program may beat.

A data-sheet profile prices every operator at the full peak rate or the full bandwidth, so the predicted time of this
project's program (one operator at a time, no fusion by a compiler) is what no such program can beat. Published
runs of nanoGPT compile the model, which fuses the elementwise operators (fewer bytes than predicted), and never reach
all of the peak (more time than predicted); the share of the limit they reach is printed, never tuned away.

========  ==========================================================================================================
source    what was measured
========  ==========================================================================================================
#110      github.com/karpathy/nanoGPT/issues/110 (2023-02): GPT-2 124M, 8 x A100, 12 x 1024 tokens a pass, 5 passes an
          iteration, torch 2.0 nightly, compiled: 562 ms an iteration
#225      github.com/karpathy/nanoGPT/pull/225 (2023-03): the same model on one RTX 4090, 40 passes an iteration of 12 x
          1024 tokens, torch 2.0, compiled: 4622 ms an iteration
========  ==========================================================================================================

nanoGPT leaves biases out and pads its vocabulary to 50304: below 1 % of the work. Communication between the eight
GPUs is not told apart; the update is spread over the passes of an iteration, here it is part of every step.

Run: python benchmarks/published_steps.py
"""

from __future__ import annotations

from dataclasses import dataclass

from results import write_result
from wattention.analysis.predict import PredictionQuery
from wattention.core.specs import ModelSpec
from wattention.study.prediction import predict


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published step time."""

    source: str
    hardware: str
    iteration_s: float
    passes: int
    batch: int = 12
    tokens: int = 1024

    @property
    def pass_s(self) -> float:
        """Seconds of one forward and backward pass of a batch."""
        return self.iteration_s / self.passes


PUBLISHED = (
    Published(source="karpathy/nanoGPT issue 110", hardware="a100-40", iteration_s=0.562, passes=5),
    Published(source="karpathy/nanoGPT pull request 225", hardware="rtx-4090", iteration_s=4.622, passes=40),
)


def compare(one: Published) -> dict[str, float | str]:
    """Return the published and the predicted seconds of a pass, and the share of the limit that was reached."""
    query = PredictionQuery(
        model=ModelSpec.preset("gpt2"), mechanism="sdpa", tokens=one.tokens, batch=one.batch, precision="bfloat16",
        hardware=one.hardware,
    )  # fmt: skip
    found = predict(query)
    limit = found.train.time.to_json()["value"]
    update = found.train.part_times["optimiser"].to_json()["value"]
    return {
        "source": one.source, "hardware": one.hardware, "published_s": one.pass_s, "predicted_limit_s": limit,
        "of_which_update_s": update, "share_of_limit": (limit - update * (1 - 1 / one.passes)) / one.pass_s,
        "bound_by": found.train.bound_by,
    }  # fmt: skip


def main() -> None:
    rows = [compare(one) for one in PUBLISHED]
    for row in rows:
        print(
            f"{row['hardware']:10} published {row['published_s']:.4f} s   limit {row['predicted_limit_s']:.4f} s "
            f"({row['bound_by']})   share reached {row['share_of_limit']:.2f}   {row['source']}"
        )
    write_result("published_steps", {"rows": rows})


if __name__ == "__main__":
    main()
