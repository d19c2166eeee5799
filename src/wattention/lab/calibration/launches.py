"""What one operator costs that has nothing to do.

Training steps of a model so small that nothing else costs, one for every built-in mechanism, divided by the number of
operators that their traces count.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.lab.traces.tracing import trace
from wattention.lab.training import Trainer
from wattention.mechanisms.base import MECHANISMS
from wattention.model.gpt2 import GPT2


class _TinyBatches:
    """Batches that cost nothing to draw."""

    def train(self, index: int) -> Any:
        """Return 8 tokens, all zero."""
        from wattention.data.batches import Batch

        tokens = np.zeros((1, 8), dtype=np.int64)
        return Batch(inputs=tokens, targets=tokens, target_bytes=None)


def time_launch(*, steps: int = 9) -> tuple[float, int]:
    """Return the seconds of one operator that has nothing to do, and over how many the average was taken."""
    model = ModelSpec(layers=2, heads=2, width=8, mlp_width=32, context=8, vocabulary=8)
    spec = TrainingSpec(batch=1, tokens=8, steps=1000)
    seconds, launches = 0.0, 0
    for name in MECHANISMS.names():
        mechanism = MECHANISMS.load(name)
        config = mechanism.config()
        trainer = Trainer(GPT2(model, mechanism, config), _TinyBatches(), spec)  # type: ignore[arg-type]
        for _ in range(3):
            trainer.step()
        samples = []
        for _ in range(steps):
            start = time.perf_counter()
            trainer.step()
            samples.append(time.perf_counter() - start)
        seconds += statistics.median(samples)
        launches += trace("train", model, mechanism, config, tokens=8, batch=1, precision="float32").launches
    return seconds / launches, launches
