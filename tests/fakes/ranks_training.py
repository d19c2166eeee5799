"""Train small models over ranks and save what came out; run by torchrun, and called in one process for the truth."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

import torch
import torch._dynamo  # once here, and not again in every child: for its first optimiser,
import torch.distributed.fsdp  # ... and for its model

from wattention.core.specs import DataSpec, ModelSpec, TrainingSpec
from wattention.data.task import open_batches
from wattention.lab.parallel.join import join
from wattention.lab.parallel.meeting import Meeting
from wattention.lab.parallel.one_process import ALONE
from wattention.lab.training import Trainer
from wattention.mechanisms.base import MECHANISMS
from wattention.model.gpt2 import GPT2

MODEL = ModelSpec(layers=2, heads=2, width=16, context=16, vocabulary=256)
TRAINING = TrainingSpec(steps=3, batch=4, accumulation=2, warmup_steps=1, learning_rate=1e-2)


def train(mechanism, dtype, text, spread=ALONE, device="cpu", precision="float32"):
    """Return losses, all gradients of every step after clipping, the last parameters, and the evaluation."""
    # 3 held-out windows in one batch of 3: they divide among neither 2 nor 4 ranks
    data = DataSpec(text=text, heldout_fraction=0.2, heldout_tokens=3 * 16)
    spec = TRAINING.replace(precision=precision)
    batches = open_batches(data, vocabulary=256, batch=spec.batch, tokens=16, order_seed=0)
    model = GPT2(MODEL, MECHANISMS.load(mechanism)).to(getattr(torch, dtype))
    trainer = Trainer(model, batches, spec, device=device, spread=spread)
    gradients = []
    trainer.optimizer.register_step_pre_hook(
        lambda *_: gradients.append([whole(p.grad).double() for p in model.parameters()])
    )
    losses = [float(spread.sum(trainer.step().loss.float()) / spread.size) for _ in range(spec.steps)]
    evaluation = trainer.evaluate()
    return {
        "losses": losses,
        "gradients": [torch.cat([g.flatten() for g in step]).cpu() for step in gradients],
        "parameters": torch.cat([whole(p).detach().double().flatten() for p in model.parameters()]).cpu(),
        "evaluation": (evaluation.loss, evaluation.accuracy, evaluation.bits_per_byte, evaluation.targets),
    }


def whole(tensor):
    """Return a copy of a tensor, gathered from all ranks where it is spread over them."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()


def train_in_child(meeting, mechanism, dtype, text, device, precision, out):
    """Train one case in this process, which ends with it: a cell has a process of its own, and so has its group.

    Groups that are left and made again in one process now and then abort it (torch 2.13, gloo).
    """
    own = meeting.device(device)
    found = train(mechanism, dtype, text, join(meeting, own), own, precision)
    if meeting.rank == 0:
        torch.save(found, out)
    torch.distributed.destroy_process_group()


def main() -> None:
    """Train every case of the command line: OUT TEXT DEVICE PRECISION MODE/MECHANISM/DTYPE ..."""
    out, text, device, precision, *cases = sys.argv[1:]
    place = {name: int(os.environ[name.upper()]) for name in ("rank", "local_rank")}
    for number, case in enumerate(cases):
        mode, mechanism, dtype = case.split("/")
        meeting = Meeting(
            mode=mode,
            size=int(os.environ["WORLD_SIZE"]),
            host=os.environ["MASTER_ADDR"],
            port=int(os.environ["MASTER_PORT"]),
            name=f"test {case}",
            timeout_s=60.0,
            **place,
        )
        child = multiprocessing.get_context("fork").Process(
            target=train_in_child,
            args=(meeting, mechanism, dtype, Path(text), device, precision, f"{out}.{number}"),
        )
        child.start()
        child.join()
        assert child.exitcode == 0, f"{case} on rank {place['rank']}: {child.exitcode}"
    if place["rank"] == 0:
        torch.save({case: torch.load(f"{out}.{number}") for number, case in enumerate(cases)}, out)


if __name__ == "__main__":
    main()
