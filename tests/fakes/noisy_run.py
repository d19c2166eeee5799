"""A launcher whose cells have a true mean and true noise: a simulated device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fakes.study import FakeLauncher
from wattention.core.quantities import measured
from wattention.core.records import Phase


class NoisyLauncher(FakeLauncher):
    """Answers training cells with seconds drawn around a truth, in blocks that drift.

    Args:
        truth: seconds by mechanism; 1 where not given.
        noise: relative standard deviation of one cell.
        flagged: (mechanism, block) whose training window is disturbed, and how many times longer it takes.
    """

    def __init__(self, truth=None, *, noise=0.01, seed=0, flagged=None, fail=None):
        super().__init__(fail)
        self.truth, self.noise, self.seed, self.flagged = truth or {}, noise, seed, flagged or {}
        self.launched = []

    def run(self, cell, **options):
        record = super().run(cell, **options)
        self.launched.append(cell.key)
        if cell.key.kind != "train" or record.status != "ok":
            return record
        place = [choice.label for choice in cell.run.mechanisms].index(cell.key.mechanism)
        block = np.random.default_rng((self.seed, cell.key.block)).normal(0, 0.2)
        own = np.random.default_rng((self.seed, cell.key.block, place)).normal(0, self.noise)
        longer = self.flagged.get((cell.key.mechanism, cell.key.block), 1.0)
        seconds = self.truth.get(cell.key.mechanism, 1.0) * float(np.exp(block + own)) * longer
        flags = ({"kind": "company", "message": "others were busy"},) if longer > 1 else ()
        train = record.phases["train"]
        readings = {**train.readings, "time_s": measured(seconds, "s", "clock")}
        return replace(record, phases={**record.phases, "train": Phase(readings=readings, flags=flags)})
