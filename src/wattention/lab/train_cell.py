"""Train GPT-2 with one mechanism and measure every phase in a window of its own.

::

    build | warm-up steps | TRAINING STEPS | evaluate | energy | memory (profiled steps) | prefill | decode

Only the training steps run inside the training window; the number of tokens is fixed, so that all mechanisms see the
same text. The memory step and the kernel's name come from profiled steps afterwards, which are never timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from wattention.core.quantities import Absent, Reading, counted, measured, predicted
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.core.shapes import AttentionShape
from wattention.data.task import open_batches
from wattention.lab.energy_phase import measure_training_energy
from wattention.lab.findings import Findings, ReportProgress, load_choice
from wattention.lab.training import DivergedError, Trainer
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.meters.kernels import record_kernels, title_of_kernels
from wattention.meters.tensor_memory import measure_peak_tensor_bytes
from wattention.meters.window import Panel
from wattention.model.gpt2 import GPT2

PROMPT_REPEATS = 3
PROGRESS_EVERY_S = 0.5


@dataclass(kw_only=True)
class Stage:
    """What the phases of one training cell share."""

    cell: CellSpec
    panel: Panel
    progress: ReportProgress
    phases: dict[str, Phase] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the body as one phase."""
        window = self.panel.window()
        with window:
            yield
        flags = tuple(flag.to_json() for flag in window.flags)
        self.phases[name] = Phase(readings=window.readings, flags=flags)

    def add(self, name: str, readings: Mapping[str, Reading], **samples: tuple[float, ...]) -> None:
        """Add what the work of a measured phase found."""
        phase = self.phases[name]
        self.phases[name] = replace(
            phase, readings={**phase.readings, **readings}, samples={**phase.samples, **samples}
        )


def run_train_cell(cell: CellSpec, progress: ReportProgress) -> Findings:
    """Train, evaluate and generate with one mechanism; see the module's timeline."""
    mechanism, config = load_choice(cell)
    with Panel.open(cell.run.device) as panel:
        own_cost = panel.measure_own_cost()
        stage = Stage(cell=cell, panel=panel, progress=progress)
        progress(phase="build")
        with stage.phase("build"):
            trainer = build_trainer(cell, mechanism, config)
        _train(stage, trainer, mechanism, config)
        _evaluate(stage, trainer)
        progress(phase="energy")
        stage.phases["energy"] = measure_training_energy(
            cell, panel, stage.phases["train"], trainer.step, cell.run.tokens_per_step
        )
        progress(phase="memory")
        peak = measure_peak_tensor_bytes(trainer.step, device=cell.run.device)
        stage.phases["memory"] = Phase(readings={"peak_tensor_bytes": peak})
        kernels = record_kernels(trainer.step, device=cell.run.device)
        if cell.run.data.task == "text":
            _generate(stage, trainer)
    facts: dict[str, Any] = {
        "kernel": title_of_kernels(kernels),
        "kernel_names": list(kernels),
        "settings": config.model_dump(mode="json"),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "data": trainer.batches.provenance,
        "attends": attended_pairs(cell, mechanism, config),
        "window_cost": {name: reading.to_json() for name, reading in own_cost.items()},
    }
    return Findings(phases=stage.phases, facts=facts)


def attended_pairs(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig) -> dict[str, Any] | None:
    """The pairs of the mechanism's inner attention, as data movement sees them; None where it does not say."""
    model = cell.run.model
    shape = AttentionShape(batch=1, tokens=model.context, width=model.width, heads=model.heads)
    return None if mechanism.attends is None else mechanism.attends(shape, config).to_json()


def build_trainer(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig) -> Trainer:
    """Build data, model and optimiser of a training cell."""
    run = cell.run
    spec = run.training.replace(init_seed=cell.seed, order_seed=cell.seed)
    batches = open_batches(
        run.data,
        vocabulary=run.model.vocabulary,
        batch=spec.batch,
        tokens=spec.tokens or run.model.context,
        order_seed=cell.seed,
    )
    model = GPT2(run.model, mechanism, config, seed=cell.seed)
    return Trainer(model, batches, spec, device=run.device)


def _train(stage: Stage, trainer: Trainer, mechanism: Mechanism, config: MechanismConfig) -> None:
    run = stage.cell.run
    warmup = run.measure.warmup_steps
    steps = run.training.steps - warmup
    stage.progress(phase="warm-up")
    with stage.phase("warmup"):
        losses = [trainer.step().loss for _ in range(warmup)]
    measured_losses, marks = run_training_steps(stage, trainer, steps)
    nats = torch.stack([*losses, *measured_losses]).float().tolist()
    for step, loss in enumerate(nats):
        if not math.isfinite(loss):
            raise DivergedError(step, loss)
    samples = {"loss_nats": tuple(nats)}
    if trainer.device.type == "cpu":  # elsewhere the host runs ahead of the device: its marks would time the queueing
        samples["step_s"] = tuple((b - a) / 1e9 for a, b in pairwise(marks))
    plan = "steps x batch x accumulation x tokens of the run's specification"
    counts: dict[str, Reading] = {
        "steps": counted(steps, "1", plan),
        "tokens": counted(steps * run.tokens_per_step, "token", plan),
        **_predictions(stage.cell, mechanism, config),
    }
    stage.add("train", counts, **samples)


def run_training_steps(stage: Stage, trainer: Trainer, steps: int) -> tuple[list[Tensor], list[int]]:
    """Take the measured steps as the phase ``train``; return their losses (on the device) and the clock's marks."""
    on_cpu = trainer.device.type == "cpu"
    losses: list[Tensor] = []
    next_report = time.monotonic()
    with stage.phase("train"):
        marks = [time.perf_counter_ns()]
        for step in range(steps):
            losses.append(trainer.step().loss)
            marks.append(time.perf_counter_ns())
            if time.monotonic() >= next_report:
                # a pipe write of some microseconds, twice a second; the loss only where reading it stops no queue
                text = f"loss {losses[-1].item():.3f}" if on_cpu else ""
                elapsed_s = (marks[-1] - marks[0]) / 1e9
                speed = (step + 1) * stage.cell.run.tokens_per_step / elapsed_s
                stage.progress(phase="train", done=step + 1, total=steps, text=text, tokens_per_s=speed)
                next_report = time.monotonic() + PROGRESS_EVERY_S
    return losses, marks


def _predictions(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig) -> dict[str, Reading]:
    """FLOPs per token of the whole model, as mathematics asks and as the program runs, and attention's saved bytes."""
    model, training = cell.run.model, cell.run.training
    tokens = training.tokens or model.context
    shape = AttentionShape(batch=training.batch, tokens=tokens, width=model.width, heads=model.heads)
    cost = mechanism.cost(shape, config, 2 if training.precision == "bfloat16" else 4)
    rest = model.forward_flop_per_token + model.backward_flop_per_token
    layers_per_token = model.layers / (training.batch * tokens)
    asked = layers_per_token * (cost.forward_flop + cost.backward_flop) + rest
    executed = layers_per_token * (cost.hardware_forward_flop + cost.hardware_backward_flop) + rest
    products = "closed form of matrix products, forward and backward"
    return {
        "flop_per_token": predicted(asked, "flop/token", f"{products}, masked pairs and recomputation not counted"),
        "hardware_flop_per_token": predicted(
            executed, "flop/token", f"{products}, masked pairs that are computed and recomputation included"
        ),
        "attention_saved_bytes": predicted(
            model.layers * cost.saved_bytes, "byte", "closed form of what attention keeps from forward to backward"
        ),
    }


def _evaluate(stage: Stage, trainer: Trainer) -> None:
    stage.progress(phase="evaluate")
    with stage.phase("evaluate"):
        result = trainer.evaluate()
    how = f"loss on {result.targets} held-out tokens, after training"
    found: dict[str, Reading] = {"heldout_nats_per_token": measured(result.loss, "nat/token", how)}
    if stage.cell.run.data.task == "recall":
        found["recall_accuracy"] = measured(result.accuracy, "accuracy", f"{result.targets} held-out queries")
    elif result.bits_per_byte is None:
        found["heldout_bits_per_byte"] = Absent("a file of token ids does not tell how many bytes a token stands for")
    else:
        found["heldout_bits_per_byte"] = measured(result.bits_per_byte, "bit/byte", how)
    stage.add("evaluate", found)


@torch.inference_mode()
def _generate(stage: Stage, trainer: Trainer) -> None:
    """Read a prompt of held-out text, then generate greedily: batch 1, evaluation mode, the mechanism's cache."""
    run, model = stage.cell.run, trainer.model
    decode_tokens = run.measure.decode_tokens
    prompt_tokens = run.model.context - decode_tokens
    heldout = next(trainer.batches.heldout()).inputs[:1]
    prompt = torch.from_numpy(heldout).to(run.device)
    prompt = prompt.repeat(1, -(-prompt_tokens // prompt.shape[1]))[:, :prompt_tokens]
    model.eval()
    low = run.training.precision == "bfloat16"
    with torch.autocast(torch.device(run.device).type, torch.bfloat16, enabled=low):
        model.feed(prompt, model.new_caches(1))  # warm
        stage.progress(phase="prefill")
        with stage.phase("prefill"):
            for _ in range(PROMPT_REPEATS):
                caches = model.new_caches(1)
                logits = model.feed(prompt, caches)
        stage.add("prefill", {"prompts": counted(PROMPT_REPEATS, "1", f"repeats of {prompt_tokens} tokens")})
        stage.progress(phase="decode")
        with stage.phase("decode"):
            for _ in range(decode_tokens):
                token: Tensor = logits.argmax(dim=-1, keepdim=True)
                logits = model.feed(token, caches)
    length, cache_bytes = caches[0].length, sum(cache.nbytes for cache in caches)
    how = f"caches of all layers after {length} tokens"
    generated: dict[str, Reading] = {
        "tokens": counted(decode_tokens, "token", "tokens generated one by one"),
        "cache_bytes_per_token": counted(cache_bytes / length, "byte/token", how),
    }
    stage.add("decode", generated)
