"""Training a model on batches: AdamW, warm-up and cosine, clipping, accumulation, autocast, checkpoints.

One step is a function of the state before it and of its number: batches and dropout are seeded by the step, so a
resumed run equals an uninterrupted one bit for bit. A step leaves its loss on the device; nothing here waits for the
device but the synchronisation points ``check``, ``evaluate`` and ``save``. No clocks and no meters in here.

Learning rate at step s of S, with w steps of warm-up (Loshchilov and Hutter, 2017, equation 5, one period)::

    s < w    peak (s + 1) / w
    else     low + (peak - low) (1 + cos(pi (s - w) / (S - w))) / 2
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wattention.core.errors import UserError
from wattention.core.specs import IGNORE, TrainingSpec
from wattention.data.batches import Batch, Batches
from wattention.lab.parallel.one_process import ALONE, OneProcess
from wattention.model.gpt2 import GPT2, decay_groups


class DivergedError(RuntimeError):
    """The loss is no longer a finite number: a result of the run, not a mistake of the user.

    Args:
        step: the step whose loss was seen.
        loss: that loss, NaN or infinite.
    """

    def __init__(self, step: int, loss: float) -> None:
        self.step, self.loss = step, loss
        super().__init__(f"training diverged: the loss is {loss} at step {step}")


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """One optimiser step: its number from 0, its training loss (nats per target, on the device) and its tokens."""

    step: int
    loss: Tensor
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Quality on held-out data.

    Args:
        loss: nats per target.
        accuracy: share of targets that are the most likely token.
        bits_per_byte: None where the targets' bytes are not known.
        targets: number of targets.
    """

    loss: float
    accuracy: float
    bits_per_byte: float | None
    targets: int


def learning_rate(step: int, spec: TrainingSpec) -> float:
    """Return the learning rate of a step, counted from 0."""
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / spec.warmup_steps
    done = min((step - spec.warmup_steps) / max(spec.steps - spec.warmup_steps, 1), 1.0)
    low = spec.learning_rate * spec.final_learning_rate_fraction
    return low + (spec.learning_rate - low) * (1 + math.cos(math.pi * done)) / 2


class Trainer:
    """Trains one model.

    Args:
        model: initialised; moved to the device.
        batches: what to train and evaluate on.
        spec: how to train.
        device: where.
        spread: how a step is spread over processes; ``batches`` are those of all of them together.
    """

    def __init__(
        self,
        model: GPT2,
        batches: Batches,
        spec: TrainingSpec,
        device: torch.device | str = "cpu",
        spread: OneProcess = ALONE,
    ) -> None:
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.spread = spread
        self.batches = spread.share(batches)
        wrapped = spread.wrap(self.model)  # before the optimiser: sharding replaces the parameters
        self.spec = spec
        self.next_step = 0
        self.optimizer = torch.optim.AdamW(
            decay_groups(model, spec.weight_decay),
            lr=spec.learning_rate,
            betas=(spec.beta1, spec.beta2),
            fused=self.device.type in ("cpu", "cuda", "mps"),
        )
        self._forward: nn.Module = torch.compile(wrapped) if spec.compile else wrapped  # type: ignore[assignment]
        self._last: StepResult | None = None

    def step(self) -> StepResult:
        """Take one optimiser step; nothing waits for the device. Over several ranks the loss is this rank's share."""
        step, parts = self.next_step, self.spec.accumulation
        if not self.model.training:
            self.model.train()
        self._seed_dropout(step)
        loss = torch.zeros((), device=self.device)
        tokens = 0
        for part in range(parts):
            batch = self._to_device(self.batches.train(step * parts + part))
            with self.spread.backward_of(part, parts), self.spread.feeding(*batch) as (inputs, targets, extra):
                with self._autocast():
                    share = self._forward(inputs, targets, **extra) / parts
                share.backward()
                tokens += inputs.numel()
            loss += share.detach()
        if self.spec.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.spec.clip_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.spec)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.next_step = step + 1
        self._last = StepResult(step=step, loss=loss, tokens=tokens)
        return self._last

    def check(self, result: StepResult | None = None) -> float:
        """Wait for a step (the last one unless given) and return its loss.

        Errors: ``DivergedError`` when the loss is not finite.
        """
        result = result or self._last
        assert result is not None, "no step was taken yet"
        loss = float(result.loss)
        if not math.isfinite(loss):
            raise DivergedError(result.step, loss)
        return loss

    @torch.no_grad()
    def evaluate(self, batches: Iterable[Batch] | None = None) -> Evaluation:
        """Evaluate on the held-out batches unless others are given, in evaluation mode.

        Every rank evaluates its part, and all get the whole result.

        Errors: ``DivergedError`` when the loss is not finite.
        """
        self.model.eval()
        total = torch.zeros(3, dtype=torch.float64 if self.device.type != "mps" else torch.float32, device=self.device)
        known_bytes = 0
        bytes_known = True
        for batch in self.batches.heldout() if batches is None else batches:
            with self.spread.feeding(*self._to_device(batch)) as (inputs, targets, extra):
                with self._autocast():
                    logits = self._forward(inputs, **extra).flatten(0, 1).float()
                flat = targets.flatten()
                total[0] += nn.functional.cross_entropy(logits, flat, ignore_index=IGNORE, reduction="sum")
                total[1] += (logits.argmax(-1) == flat).sum()
                total[2] += (flat != IGNORE).sum()
            bytes_known = bytes_known and batch.target_bytes is not None
            known_bytes += batch.target_bytes or 0
        nats, right, targets_seen = self.spread.sum(total).tolist()
        known_bytes = self.spread.count_bytes(known_bytes)
        if not math.isfinite(nats):
            raise DivergedError(self.next_step, nats)
        return Evaluation(
            loss=nats / targets_seen,
            accuracy=right / targets_seen,
            bits_per_byte=nats / math.log(2) / known_bytes if bytes_known and known_bytes else None,
            targets=int(targets_seen),
        )

    def save(self, path: Path) -> None:
        """Write a checkpoint: whole or not at all, also when the machine stops in the middle.

        Errors: ``DivergedError`` instead of saving a model whose last loss is not finite; ``UserError`` when the
        file cannot be written (an older checkpoint of that name is kept), or when the model is spread over ranks.
        """
        if self.spread.size > 1:
            raise UserError("checkpoints are written by one process", got=f"{self.spread.size} ranks")
        if self._last is not None:
            self.check()
        state = {
            "identity": self._identity(),
            "next_step": self.next_step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        write_atomically(path, state)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        Errors: ``UserError`` when the file is not a checkpoint, or is of another model, data or training spec.
        """
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
            identity, next_step = json.loads(state["identity"]), int(state["next_step"])
        except Exception as error:
            raise UserError(
                "cannot read the checkpoint", got=f"{path}: {error}", wanted="a file this program saved"
            ) from None
        mine = json.loads(self._identity())
        differing = [name for name in mine if mine[name] != identity.get(name)]
        if differing:
            raise UserError(
                "the checkpoint is of another run",
                got=", ".join(f"{name} {identity.get(name)}" for name in differing),
                wanted=", ".join(f"{name} {mine[name]}" for name in differing),
                do="resume with the settings of the checkpoint, or start anew",
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.next_step = next_step
        self._last = None

    def _identity(self) -> str:
        """Everything that must be the same for a resumed run to be the same run, as JSON."""
        tensors = {name: list(t.shape) for name, t in self.model.state_dict().items()}
        facts = {
            **{f"training.{name}": value for name, value in self.spec.model_dump(mode="json").items()},
            **{f"model.{name}": value for name, value in self.model.spec.model_dump(mode="json").items()},
            "mechanism": self.model.mechanism,
            **{f"mechanism.{name}": value for name, value in self.model.config.model_dump(mode="json").items()},
            "tensors": hashlib.sha256(json.dumps(tensors).encode()).hexdigest(),
            **{f"data.{name}": value for name, value in self.batches.provenance.items() if name != "source"},
        }
        return json.dumps(facts)

    def _seed_dropout(self, step: int) -> None:
        """Seed the generators a step may draw from; torch.manual_seed would cost 0.1 ms or more for every step."""
        name = f"{self.spec.init_seed}/step/{step}"
        if self.spread.rank and self.model.spec.dropout:
            name += f"/rank {self.spread.rank}"  # rows on different ranks must not share their masks
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.spec.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _to_device(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Copy a batch to the device; from pinned memory on CUDA, so that the copy does not wait."""
        pair = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
        if self.device.type != "cuda":
            return pair[0].to(self.device), pair[1].to(self.device)
        return tuple(t.pin_memory().to(self.device, non_blocking=True) for t in pair)  # type: ignore[return-value]


def write_atomically(path: Path, state: dict[str, Any]) -> None:
    """Save tensors so that ``path`` holds the old file or the whole new one, never a part."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise UserError(
            "cannot write the checkpoint",
            got=f"{path}: {error}",
            wanted="a writable folder with room",
            do="free space, or name another folder",
        ) from None
