"""What a comparison is asked to do, as frozen data: mechanisms, model, text, training, measuring, quality, blocks.

The specification is stored beside the records; a run resumes only under the same one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from wattention.core.quality_specs import Match, TargetSpec, TuneSpec
from wattention.core.records import CellKey
from wattention.core.specs import DataSpec, ModelSpec, Spec, TrainingSpec

STUDY_MECHANISMS = ("baseline", "sdpa", "flash", "gqa", "linear", "sliding_window", "lsh", "mla")
"""The eight mechanisms of the reference study (arXiv 2507.07247), in this project's names."""


Parallel = Literal["none", "ddp", "fsdp", "context"]
"""How several devices train one model."""


class MechanismChoice(Spec):
    """One mechanism of a comparison.

    ``label`` names it in tables and records; ``source`` is a name of the mechanisms folder, an entry point, or a
    Python file. One source under two labels is an A/A test. ``mlp_width`` is the mechanism's own width of the MLP, set
    where the run matches parameters or FLOPs; None is the model's.
    """

    label: str = Field(min_length=1)
    source: str = Field(min_length=1)
    settings: dict[str, Any] = Field(default_factory=dict)
    mlp_width: int | None = Field(default=None, ge=1)


class CarbonSpec(Spec):
    """What a joule of this run's electricity emits, and who says so; resolved once, since tables change."""

    kg_per_j: float = Field(gt=0)
    source: str = Field(min_length=1)


class MeasureSpec(Spec):
    """How the cells are measured.

    Args:
        warmup_steps: training steps before the measured ones (they also fault in memory and compile).
        decode_tokens: tokens generated one by one after the prefill.
        record_meters: folder to keep every cell's raw meter readings in; None keeps none.
        replay_meters: folder of such readings to play instead of opening the machine's meters: the records are
            stamped simulated, and the work is done all the same.
        lengths: sequence lengths at which one attention layer is timed, forward and backward; empty for none.
        length_budget_s: time to spend on one length beyond the least number of repeats.
        cpu_watts_per_core: power of one busy core, for the estimate made where no energy counter can be read.
        phase_energy: where a counter can be read, repeat the work of every phase and length until it is resolved, and
            watch the idle machine; False measures the training alone.
        carbon: the carbon factor the user named; None computes no emissions.
        recall_lengths: lengths of sequence at which a model trained on the recall task is asked, afterwards.
    """

    warmup_steps: int = Field(default=2, ge=0)
    decode_tokens: int = Field(default=32, ge=1)
    record_meters: Path | None = None
    replay_meters: Path | None = None
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    length_budget_s: float = Field(default=0.1, ge=0)
    cpu_watts_per_core: float | None = Field(default=None, gt=0)
    phase_energy: bool = True
    carbon: CarbonSpec | None = None
    recall_lengths: tuple[int, ...] = ()


DECIDE_BY = {
    "time": "step_s",
    "energy": "energy_per_token_j",
    "memory": "peak_tensor_bytes",
    "rss": "peak_rss_bytes",
    "cpu": "cpu_s_per_step",
    "prefill": "prefill_s",
    "decode": "decode_s_per_token",
    "loss": "heldout_bits_per_byte",
    "recall": "recall_accuracy",
}
"""Names of what mechanisms can be told apart by, and the measure each stands for; on CUDA, memory is what its allocator
peaked at."""


class DecideSpec(Spec):
    """When a run that adds blocks until its pairs are decided may stop; may be changed on resuming.

    Args:
        by: what the pairs are decided by, a key of :data:`DECIDE_BY`.
        equal_within: a pair counts as equal once its ratio is proved to lie between 1 / (1 + this) and 1 + this.
        pairs: ``reference``: every mechanism against the run's reference; ``all``: every pair.
        max_blocks: no block is begun beyond this number.
        max_time_s: no block is begun that would end later than this after the command's start.
    """

    by: Literal["time", "energy", "memory", "rss", "cpu", "prefill", "decode", "loss", "recall"] = "time"
    equal_within: float = Field(default=0.03, gt=0, lt=1)
    pairs: Literal["reference", "all"] = "reference"
    max_blocks: int = Field(default=20, ge=2)
    max_time_s: float | None = Field(default=None, gt=0)


class RunSpec(Spec):
    """A whole comparison: randomised complete blocks, each running every mechanism once in its own process.

    ``seed + block // reruns`` seeds initialisation and batch order, the same for all mechanisms of a block; ``seed``
    alone draws the order of the mechanisms in the blocks. ``threads`` is the number of CPU threads of every cell, on
    every rank. ``reruns`` blocks in a row share a seed, which tells the spread over seeds from the spread of repeating
    one. ``target``, ``match`` and ``tune`` hold quality equal; see ``core/quality_specs.py``.

    ``parallel`` spreads the training cells over ``ranks`` processes, each with a device of its own: replicas (ddp),
    shards of the parameters (fsdp), or parts of every sequence (context). ``training.batch`` stays the batch of all
    ranks together, so that the losses are those of one process.
    """

    mechanisms: tuple[MechanismChoice, ...] = Field(min_length=1)
    model: ModelSpec
    data: DataSpec
    training: TrainingSpec
    measure: MeasureSpec = MeasureSpec()
    target: TargetSpec | None = None
    match: Match = "named"
    tune: TuneSpec | None = None
    blocks: int = Field(default=2, ge=1)
    reruns: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0)
    device: str = "cpu"
    threads: int = Field(ge=1)
    malloc: Literal["default", "keep"] = "keep"
    time_limit_s: float | None = Field(default=None, gt=0)
    decide: DecideSpec | None = None
    """Add blocks until the pairs are decided; None: ``blocks`` blocks and no more."""
    grown_from: int | None = None
    """Number of blocks the run was started with, where blocks were added to it later."""
    parallel: Parallel = "none"
    ranks: int = Field(default=1, ge=1)

    @property
    def decided_by(self) -> str:
        """The measure by which the pairs are decided: training time where the run does not say."""
        by = "time" if self.decide is None else self.decide.by
        return "peak_allocated_bytes" if by == "memory" and self.device.startswith("cuda") else DECIDE_BY[by]

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimiser step."""
        return self.training.batch * self.training.accumulation * (self.training.tokens or self.model.context)

    @property
    def reference(self) -> str:
        """Label of the mechanism that others are compared and matched with: ``baseline``, else the first."""
        labels = [choice.label for choice in self.mechanisms]
        return "baseline" if "baseline" in labels else labels[0]

    @property
    def seeds(self) -> int:
        """Number of different seeds."""
        return -(-self.blocks // self.reruns)

    def seed_of(self, block: int) -> int:
        """Return the seed of initialisation and batch order in a block."""
        return self.seed + block // self.reruns

    def choice(self, label: str) -> MechanismChoice:
        """Return the mechanism with this label."""
        return next(choice for choice in self.mechanisms if choice.label == label)

    def model_of(self, label: str) -> ModelSpec:
        """Return the model that a mechanism is put into: the run's, with the mechanism's own MLP where matched."""
        width = self.choice(label).mlp_width
        return self.model if width is None else self.model.replace(mlp_width=width)


class CellSpec(Spec):
    """One cell of a run, ready to be carried to the process that runs it.

    ``learning_rate`` and ``target_loss`` (bits per byte) are what earlier records of the run decided of this cell.
    """

    run: RunSpec
    key: CellKey
    order: int
    learning_rate: float | None = None
    target_loss: float | None = None

    @property
    def choice(self) -> MechanismChoice:
        """The cell's mechanism."""
        return self.run.choice(self.key.mechanism)

    @property
    def model(self) -> ModelSpec:
        """The model of the cell's mechanism."""
        return self.run.model_of(self.key.mechanism)

    @property
    def seed(self) -> int:
        """Seed of initialisation and batch order: shared by all mechanisms of the block."""
        return self.run.seed_of(self.key.block)

    @property
    def training(self) -> TrainingSpec:
        """How the cell trains: the run's way, with the cell's seed and the learning rate found for its mechanism."""
        seeds = {"init_seed": self.seed, "order_seed": self.seed}
        rate = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return self.run.training.replace(**seeds, **rate)
