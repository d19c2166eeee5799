"""What one operator costs that has nothing to do.

Training steps, and tokens fed one by one, of a model so small that nothing else costs, for every built-in mechanism,
divided by the number of operators that their traces count. Inference builds no graph, so its operators start faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.lab.traces.runs import Workload
from wattention.lab.traces.tracing import trace
from wattention.lab.training import Trainer
from wattention.mechanisms.base import MECHANISMS, Mechanism, MechanismConfig
from wattention.model.gpt2 import GPT2


class _TinyBatches:
    """Batches that cost nothing to draw."""

    def train(self, index: int) -> Any:
        """Return a few tokens, all zero."""
        from wattention.data.batches import Batch

        tokens = np.zeros((1, PROMPT), dtype=np.int64)
        return Batch(inputs=tokens, targets=tokens, target_bytes=None)


MODEL = ModelSpec(layers=2, heads=2, width=8, mlp_width=32, context=64, vocabulary=8)
PROMPT = 8


def time_launch(*, steps: int = 9) -> tuple[float, int]:
    """Return the seconds of one operator that has nothing to do, and over how many the average was taken."""
    spec = TrainingSpec(batch=1, tokens=PROMPT, steps=1000)

    def calls(mechanism: Mechanism, config: MechanismConfig) -> list[float]:
        trainer = Trainer(GPT2(MODEL, mechanism, config), _TinyBatches(), spec)  # type: ignore[arg-type]
        for _ in range(3):
            trainer.step()
        return [_seconds_of(trainer.step) for _ in range(steps)]

    return _average("train", calls)


def time_launch_of_inference(*, tokens: int = 40) -> tuple[float, int]:
    """As :func:`time_launch`, for tokens that are fed one by one after a prompt."""
    prompt = torch.zeros((1, PROMPT), dtype=torch.long)

    def calls(mechanism: Mechanism, config: MechanismConfig) -> list[float]:
        net = GPT2(MODEL, mechanism, config).eval()
        with torch.inference_mode():
            caches = net.new_caches(1)
            net.feed(prompt, caches)
            return [_seconds_of(partial(net.feed, prompt[:, :1], caches)) for _ in range(tokens)]

    return _average("decode", calls)


def _average(workload: Workload, calls: Callable[[Mechanism, MechanismConfig], list[float]]) -> tuple[float, int]:
    """Divide the medians of all mechanisms by the operators that are in their traces."""
    seconds, launches = 0.0, 0
    for name in MECHANISMS.names():
        mechanism = MECHANISMS.load(name)
        config = mechanism.config()
        seconds += statistics.median(calls(mechanism, config))
        launches += trace(workload, MODEL, mechanism, config, tokens=PROMPT, batch=1, precision="float32").launches
    return seconds / launches, launches


def _seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
