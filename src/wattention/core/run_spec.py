"""What a comparison is asked to do, as frozen data: mechanisms, model, text, training, measuring, blocks.

The specification is stored beside the records; a run resumes only under the same one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from wattention.core.records import CellKey
from wattention.core.specs import DataSpec, ModelSpec, Spec, TrainingSpec

STUDY_MECHANISMS = ("baseline", "sdpa", "flash", "gqa", "linear", "sliding_window", "lsh", "mla")
"""The eight mechanisms of the reference study (arXiv 2507.07247), in this project's names."""


Parallel = Literal["none", "ddp", "fsdp", "context"]
"""How several devices train one model."""


class MechanismChoice(Spec):
    """One mechanism of a comparison.

    ``label`` names it in tables and records; ``source`` is a name of the mechanisms folder, an entry point, or a
    Python file. One source under two labels is an A/A test.
    """

    label: str = Field(min_length=1)
    source: str = Field(min_length=1)
    settings: dict[str, Any] = Field(default_factory=dict)


class MeasureSpec(Spec):
    """How the cells are measured.

    Args:
        warmup_steps: training steps before the measured ones (they also fault in memory and compile).
        decode_tokens: tokens generated one by one after the prefill.
        lengths: sequence lengths at which one attention layer is timed, forward and backward; empty for none.
        length_budget_s: time to spend on one length beyond the least number of repeats.
        cpu_watts_per_core: power of one busy core, for the estimate made where no energy counter can be read.
    """

    warmup_steps: int = Field(default=2, ge=0)
    decode_tokens: int = Field(default=32, ge=1)
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    length_budget_s: float = Field(default=0.1, ge=0)
    cpu_watts_per_core: float | None = Field(default=None, gt=0)


class RunSpec(Spec):
    """A whole comparison: randomised complete blocks, each running every mechanism once in its own process.

    ``seed + block`` seeds initialisation and batch order, the same for all mechanisms of a block; ``seed`` alone draws
    the order of the mechanisms in the blocks. ``threads`` is the number of CPU threads of every cell, on every rank.

    ``parallel`` spreads the training cells over ``ranks`` processes, each with a device of its own: replicas (ddp),
    shards of the parameters (fsdp), or parts of every sequence (context). ``training.batch`` stays the batch of all
    ranks together, so that the losses are those of one process.
    """

    mechanisms: tuple[MechanismChoice, ...] = Field(min_length=1)
    model: ModelSpec
    data: DataSpec
    training: TrainingSpec
    measure: MeasureSpec = MeasureSpec()
    blocks: int = Field(default=2, ge=1)
    seed: int = Field(default=0, ge=0)
    device: str = "cpu"
    threads: int = Field(ge=1)
    malloc: Literal["default", "keep"] = "keep"
    time_limit_s: float | None = Field(default=None, gt=0)
    parallel: Parallel = "none"
    ranks: int = Field(default=1, ge=1)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimiser step."""
        return self.training.batch * self.training.accumulation * (self.training.tokens or self.model.context)

    def choice(self, label: str) -> MechanismChoice:
        """Return the mechanism with this label."""
        return next(choice for choice in self.mechanisms if choice.label == label)


class CellSpec(Spec):
    """One cell of a run, ready to be carried to the process that runs it."""

    run: RunSpec
    key: CellKey
    order: int

    @property
    def choice(self) -> MechanismChoice:
        """The cell's mechanism."""
        return self.run.choice(self.key.mechanism)

    @property
    def seed(self) -> int:
        """Seed of initialisation and batch order: shared by all mechanisms of the block."""
        return self.run.seed + self.key.block
