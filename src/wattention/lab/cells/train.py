"""Train GPT-2 with one mechanism and measure every phase in a window of its own.

::

    build | idle | warm-up | TRAINING STEPS | evaluate | energy | memory (profiled steps) | prefill | decode | idle

Only the training steps run inside the training window; the number of tokens is fixed, so that all mechanisms see the
same text. The memory step and the kernel's name come from profiled steps afterwards, which are never timed. The idle
windows, and those that repeat work for its energy, exist only where an energy counter does (phases/energy.py).

Over several ranks every rank runs this same timeline: a window opens after a common barrier, and its readings become
one set of all ranks' when it is closed (parallel/readings.py), so that what follows sees the same numbers everywhere.
"""

from __future__ import annotations

import copy
import math
import time
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from wattention.core.quantities import Absent, Reading, counted, measured, predicted
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.core.shapes import AttentionShape
from wattention.lab.cells.build import build_trainer
from wattention.lab.cells.findings import Findings, load_choice
from wattention.lab.parallel.one_process import ALONE, OneProcess
from wattention.lab.phases.energy import EnergyWindows, Work
from wattention.lab.phases.power_trace import bound_traces
from wattention.lab.phases.recall import ask_at_lengths
from wattention.lab.phases.stage import ReportProgress, Stage
from wattention.lab.quality.matching import describe_match, train_flop_per_token
from wattention.lab.training import DivergedError, Trainer
from wattention.mechanisms.base import Cache, Mechanism, MechanismConfig
from wattention.meters.kernels import record_kernels, title_of_kernels
from wattention.meters.tensor_memory import measure_peak_tensor_bytes
from wattention.meters.window import Panel, do_nothing
from wattention.model.gpt2 import GPT2

GENERATED = ("prefill", "decode")
PROMPT_REPEATS = 3
PROGRESS_EVERY_S = 0.5


def run_train_cell(cell: CellSpec, progress: ReportProgress, spread: OneProcess = ALONE) -> Findings:
    """Train, evaluate and generate with one mechanism; see the module's timeline."""
    mechanism, config = load_choice(cell)
    with Panel.open(cell.run.device) as panel:
        spread.sit_down(panel)
        own_cost = panel.measure_own_cost()
        stage = Stage(cell=cell, panel=panel, progress=progress, spread=spread)
        progress(phase="build")
        with stage.phase("build"):
            trainer = build_trainer(cell, mechanism, config, spread)
        energy = EnergyWindows(stage=stage)
        progress(phase="idle")
        energy.watch_idle("before")
        _train(stage, trainer, mechanism, config)
        targets = _evaluate(stage, trainer)
        if cell.run.measure.recall_lengths:
            progress(phase="recall")
            stage.phases["recall"] = ask_at_lengths(cell, trainer)
        progress(phase="energy")
        energy.of_training(trainer.step, cell.run.tokens_per_step)
        energy.of_phase("build", Work())
        energy.of_phase("warmup", Work())
        energy.of_phase("evaluate", Work(do=trainer.evaluate, makes="targets", each=targets))
        progress(phase="memory")
        peak = measure_peak_tensor_bytes(trainer.step, device=cell.run.device)
        stage.phases["memory"] = spread.merge(Phase(readings={"peak_tensor_bytes": peak}))
        kernels = record_kernels(trainer.step, device=cell.run.device)
        if cell.run.data.task == "text":
            _generate(stage, trainer, energy)
        progress(phase="idle")
        energy.watch_idle("after")
    facts: dict[str, Any] = {
        "kernel": title_of_kernels(kernels),
        "kernel_names": list(kernels),
        "settings": config.model_dump(mode="json"),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "learning_rate": trainer.spec.learning_rate,
        "match": describe_match(cell.run, cell.key.mechanism),
        "data": trainer.batches.provenance,
        "attends": attended_pairs(cell, mechanism, config),
        "window_cost": {name: reading.to_json() for name, reading in own_cost.items()},
        **spread.facts(),
    }
    return Findings(phases=bound_traces(stage.phases), facts=facts)


def attended_pairs(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig) -> dict[str, Any] | None:
    """The pairs of the mechanism's inner attention, as data movement sees them; None where it does not say."""
    model = cell.run.model
    shape = AttentionShape(batch=1, tokens=model.context, width=model.width, heads=model.heads)
    return None if mechanism.attends is None else mechanism.attends(shape, config).to_json()


def _train(stage: Stage, trainer: Trainer, mechanism: Mechanism, config: MechanismConfig) -> None:
    run = stage.cell.run
    warmup = run.measure.warmup_steps
    steps = run.training.steps - warmup
    stage.progress(phase="warm-up")
    with stage.phase("warmup"):
        losses = [trainer.step().loss for _ in range(warmup)]
    measured_losses, marks = run_training_steps(stage, trainer, steps)
    spread = trainer.spread
    nats = (spread.sum(torch.stack([*losses, *measured_losses]).float()) / spread.size).tolist()
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
                whose = " of rank 0's part" if trainer.spread.size > 1 else ""
                text = f"loss {losses[-1].item():.3f}{whose}" if on_cpu else ""
                elapsed_s = (marks[-1] - marks[0]) / 1e9
                speed = (step + 1) * stage.cell.run.tokens_per_step / elapsed_s
                stage.progress(phase="train", done=step + 1, total=steps, text=text, tokens_per_s=speed)
                next_report = time.monotonic() + PROGRESS_EVERY_S
    return losses, marks


def _predictions(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig) -> dict[str, Reading]:
    """FLOPs per token of the whole model, as mathematics asks and as the program runs, and attention's saved bytes."""
    model, training = cell.model, cell.run.training
    tokens = training.tokens or model.context
    shape = AttentionShape(batch=training.batch, tokens=tokens, width=model.width, heads=model.heads)
    cost = mechanism.cost(shape, config, 2 if training.precision == "bfloat16" else 4)
    asked = train_flop_per_token(model, cost.forward_flop + cost.backward_flop, batch=training.batch, tokens=tokens)
    hardware_flop = cost.hardware_forward_flop + cost.hardware_backward_flop
    executed = train_flop_per_token(model, hardware_flop, batch=training.batch, tokens=tokens)
    products = "closed form of matrix products, forward and backward"
    return {
        "flop_per_token": predicted(asked, "flop/token", f"{products}, masked pairs and recomputation not counted"),
        "hardware_flop_per_token": predicted(
            executed, "flop/token", f"{products}, masked pairs that are computed and recomputation included"
        ),
        "attention_saved_bytes": predicted(
            model.layers * cost.saved_bytes / cell.run.ranks,
            "byte",
            "closed form of what attention keeps from forward to backward"
            + (f", the share of one of {cell.run.ranks} ranks" if cell.run.ranks > 1 else ""),
        ),
    }


def _evaluate(stage: Stage, trainer: Trainer) -> int:
    """Evaluate as a phase of its own; return how many targets that were."""
    stage.progress(phase="evaluate")
    with stage.phase("evaluate"):
        result = trainer.evaluate()
    how = f"loss on {result.targets} held-out tokens, after training"
    found: dict[str, Reading] = {
        "targets": counted(result.targets, "token", "held-out targets of one evaluation"),
        "heldout_nats_per_token": measured(result.loss, "nat/token", how),
    }
    if stage.cell.run.data.task == "recall":
        found["recall_accuracy"] = measured(result.accuracy, "accuracy", f"{result.targets} held-out queries")
    elif result.bits_per_byte is None:
        found["heldout_bits_per_byte"] = Absent("a file of token ids does not tell how many bytes a token stands for")
    else:
        found["heldout_bits_per_byte"] = measured(result.bits_per_byte, "bit/byte", how)
    stage.add("evaluate", found)
    return result.targets


@torch.inference_mode()
def _generate(stage: Stage, trainer: Trainer, energy: EnergyWindows) -> None:
    """Read a prompt of held-out text, then generate greedily: batch 1, evaluation mode, the mechanism's cache.

    Rank 0 alone where it holds the whole model; the windows are common to all ranks.
    """
    if not trainer.spread.generates:
        for name in GENERATED:
            with stage.phase(name):
                pass
        for name in GENERATED:
            energy.of_phase(name, Work(do=do_nothing))
        return
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
        kept = copy.deepcopy(caches) if energy.repeats_phases else []
        stage.progress(phase="decode")
        with stage.phase("decode"):
            decode_greedily(model, caches, logits, decode_tokens)
        length, cache_bytes = caches[0].length, sum(cache.nbytes for cache in caches)
        how = f"caches of all layers after {length} tokens"
        generated: dict[str, Reading] = {
            "tokens": counted(decode_tokens, "token", "tokens generated one by one"),
            "cache_bytes_per_token": counted(cache_bytes / length, "byte/token", how),
        }
        stage.add("decode", generated)
        stage.progress(phase="energy")
        read = Work(do=lambda: model.feed(prompt, model.new_caches(1)), makes="prompts")
        energy.of_phase("prefill", read)
        again = Work(
            do=lambda: decode_greedily(model, copy.deepcopy(kept), logits, decode_tokens),
            makes="tokens",
            each=decode_tokens,
            note="each from a copy of the prompt's caches, the copying included",
        )
        energy.of_phase("decode", again)


def decode_greedily(model: GPT2, caches: list[Cache], logits: Tensor, tokens: int) -> None:
    """Generate tokens one by one after the prompt that left these caches and logits (B, V)."""
    for _ in range(tokens):
        token = logits.argmax(dim=-1, keepdim=True)
        logits = model.feed(token, caches)
