"""One model on several devices: how a training step is spread over processes, one class a way.

Every rank reads the same global batch and takes its part of it; gradients are averaged over ranks. Parts are equal and
every sequence has as many targets as the next, so the mean of the ranks' means is the mean of the batch, and losses and
gradients are those of one process with that batch, up to the order of additions::

    ddp        rows of the batch / N      every rank holds the model          torch DistributedDataParallel
    fsdp       rows of the batch / N      every rank holds 1/N of each matrix torch fully_shard, a block at a time
    context    positions / N              see context.py

Parameters, gradients and their sums stay float32 also where autocast computes in bfloat16, as in one process: a policy
that gathered bfloat16 parameters would halve the traffic and train another model.
Cost per step and rank (P parameter bytes): ddp moves about 2 P (N - 1)/N, fsdp 3 P (N - 1)/N.
Source: Li et al. 2020, arXiv 2006.15704; Rajbhandari et al. 2020, arXiv 1910.02054, section 7 (the traffic).
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from wattention.core.errors import UserError
from wattention.core.records import Phase
from wattention.core.run_spec import Parallel
from wattention.core.specs import IGNORE
from wattention.data.batches import Batch, Batches
from wattention.lab.parallel.readings import Seat, merge_phases
from wattention.meters.window import Panel

if TYPE_CHECKING:
    from wattention.model.gpt2 import GPT2


class OneProcess:
    """The whole step in this process; also the base of the ways to spread it."""

    mode: Parallel = "none"
    rank = 0
    size = 1
    generates = True
    """Whether this process takes part in generation."""

    def share(self, batches: Batches) -> Batches:
        """Return this process's part of the batches."""
        return batches

    def wrap(self, model: GPT2) -> nn.Module:
        """Return the module whose call is the forward pass; the model itself stays usable."""
        return model

    def backward_of(self, part: int, parts: int) -> AbstractContextManager[None]:
        """Return the context of one forward and backward pass of an accumulated step: only the last averages."""
        return nullcontext()

    @contextmanager
    def feeding(self, inputs: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor, dict[str, Tensor]]]:
        """Yield what this process feeds of inputs and targets (B, T), and further arguments of the model."""
        yield inputs, targets, {}

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over ranks."""
        return values

    def count_bytes(self, known: int) -> int:
        """Return the bytes of all ranks' held-out targets; ``share`` counts them at rank 0."""
        return int(self.gather(known)[0])

    def gather(self, item: Any) -> list[Any]:
        """Return every rank's item, in order of rank; on every rank."""
        return [item]

    def barrier(self) -> None:
        """Wait until every rank is here."""

    def sit_down(self, panel: Panel) -> None:
        """Tell the others what the instruments of this rank read."""

    def merge(self, phase: Phase) -> Phase:
        """Return one phase of all ranks' phases; on every rank."""
        return phase

    @property
    def cores(self) -> int:
        """Logical cores of all machines in use."""
        return os.cpu_count() or 1

    def facts(self) -> dict[str, Any]:
        """What a record says of the ranks."""
        return {}


ALONE = OneProcess()


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where the ranks of one cell meet.

    Args:
        mode: how the step is spread.
        rank, size, local_rank: as torchrun counts them.
        host, port: of a TCP store that is already served.
        name: of this meeting; no two on one store may share it.
        timeout_s: after which a collective that a rank does not join is an error.
    """

    mode: Parallel
    rank: int
    size: int
    local_rank: int
    host: str
    port: int
    name: str
    timeout_s: float

    def device(self, name: str) -> str:
        """Return the device of this rank: the GPU of its local rank, or the CPU."""
        return name if name == "cpu" else f"{name}:{self.local_rank}"


class Ranks(OneProcess):
    """What all ways over several processes have in common: collectives, and one reading out of many."""

    def __init__(self, meeting: Meeting, device: str, backend: str) -> None:
        self.mode, self.rank, self.size = meeting.mode, meeting.rank, meeting.size
        self.device, self.backend = torch.device(device), backend
        self.generates = self.rank == 0
        self._local_rank = meeting.local_rank
        self._seats: Sequence[Seat] = ()

    def share(self, batches: Batches) -> Batches:
        """Return this rank's rows of the batches."""
        return BatchRows(batches, rank=self.rank, size=self.size)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over ranks."""
        total = values.clone()
        torch.distributed.all_reduce(total)
        return total

    def gather(self, item: Any) -> list[Any]:
        """Return every rank's item; through the CPU, whatever the device."""
        items: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(items, item)
        return items

    def barrier(self) -> None:
        """Wait until every rank is here, on the CPU: a device's own barrier would only be queued."""
        torch.distributed.all_reduce(torch.zeros(1))

    def sit_down(self, panel: Panel) -> None:
        """Exchange seats: who sits at which machine and device, and which counters it reads."""
        facts = [one.instrument.facts for one in panel.meters.opened if one.meter.name == "energy"]
        domains = facts[0]["domains"] if facts else {}
        seat = Seat(
            rank=self.rank,
            local_rank=self._local_rank,
            host=socket.gethostname(),
            machine=machine_id(),
            cores=os.cpu_count() or 1,
            device=device_id(self.device),
            domains={name: bool(about["in_total"]) for name, about in domains.items()},
            missing=dict(facts[0]["missing"]) if facts else {},
        )
        self._seats = self.gather(seat)

    def merge(self, phase: Phase) -> Phase:
        """Return one phase of all ranks' phases, each device and machine in it once."""
        assert self._seats, "the ranks have not sat down yet"
        return merge_phases(self._seats, self.gather(phase))

    @property
    def cores(self) -> int:
        """Logical cores of all machines, each once."""
        return sum({seat.machine: seat.cores for seat in self._seats}.values())

    def facts(self) -> dict[str, Any]:
        """Return mode, ranks, backend, and where every rank sat."""
        seats = [{"rank": s.rank, "host": s.host, "device": s.device} for s in self._seats]
        return {"parallel": {"mode": self.mode, "ranks": self.size, "backend": self.backend, "seats": seats}}


class Replicas(Ranks):
    """Data parallel: every rank holds the whole model and averages gradients while the backward pass runs."""

    def wrap(self, model: GPT2) -> nn.Module:
        """Wrap the model; its buffers are constants or drawn from the seed, and are not sent around."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 renames the argument; 2.6 knows only this name
            self._model = nn.parallel.DistributedDataParallel(
                model,
                device_ids=None if self.device.type == "cpu" else [self.device.index],
                broadcast_buffers=False,
                gradient_as_bucket_view=True,  # else every gradient would be held twice
            )
        return self._model

    @contextmanager
    def backward_of(self, part: int, parts: int) -> Iterator[None]:
        """Average at the last part only."""
        with nullcontext() if part == parts - 1 else self._model.no_sync():
            yield


class Shards(Ranks):
    """Fully sharded: every rank holds 1/N of each parameter; a block is gathered when it is needed."""

    def __init__(self, meeting: Meeting, device: str, backend: str) -> None:
        super().__init__(meeting, device, backend)
        self.generates = True  # no rank has the whole model

    def wrap(self, model: GPT2) -> nn.Module:
        """Shard every block, then what is left; the model must be on its device."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(self.device.type, (self.size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        self._model = fully_shard(model, mesh=mesh)
        register_fsdp_forward_method(model, "feed")
        return model

    @contextmanager
    def backward_of(self, part: int, parts: int) -> Iterator[None]:
        """Reduce at the last part only."""
        self._model.set_requires_gradient_sync(part == parts - 1)
        yield


class BatchRows:
    """One rank's rows of every batch of others: equal parts in training; in evaluation as even as the rows allow.

    Args:
        batches: the batches of all ranks together.
        rank, size: which part of how many.
    """

    def __init__(self, batches: Batches, *, rank: int, size: int) -> None:
        self._batches, self._rank, self._size = batches, rank, size

    @property
    def vocabulary(self) -> int:
        """Every id is below it."""
        return self._batches.vocabulary

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the tokens come from."""
        return self._batches.provenance

    def train(self, index: int) -> Batch:
        """Return this rank's rows of one training batch.

        Raises:
            UserError: the rows cannot be divided equally.
        """
        batch = self._batches.train(index)
        rows = len(batch.inputs)
        if rows % self._size:
            raise uneven_batch(rows, self._size)
        mine = np.arange(rows).reshape(self._size, -1)[self._rank]
        return Batch(inputs=batch.inputs[mine], targets=batch.targets[mine])

    def validation(self) -> Iterator[Batch]:
        """Refuse: a search for a learning rate runs in one process.

        Raises:
            UserError: always.
        """
        raise UserError("validation windows are read by one process", got=f"{self._size} ranks")

    def heldout(self) -> Iterator[Batch]:
        """Yield this rank's rows of the held-out batches; the targets' bytes are counted at rank 0.

        A rank without a row gets one whose targets have no loss: all ranks must run as many forward passes.
        """
        for batch in self._batches.heldout():
            mine = np.array_split(np.arange(len(batch.inputs)), self._size)[self._rank]
            known = batch.target_bytes if self._rank == 0 or batch.target_bytes is None else 0
            if len(mine):
                yield Batch(inputs=batch.inputs[mine], targets=batch.targets[mine], target_bytes=known)
            else:
                nothing = np.full_like(batch.targets[:1], IGNORE)
                yield Batch(inputs=batch.inputs[:1], targets=nothing, target_bytes=known)


def uneven_batch(batch: int, ranks: int) -> UserError:
    """Return the error for a batch that the ranks cannot share equally."""
    return UserError(
        "the batch cannot be shared equally",
        got=f"{batch} sequences over {ranks} ranks",
        wanted=f"a multiple of {ranks}",
        do=f"set --batch to {-(-batch // ranks) * ranks}",
    )


def machine_id() -> str:
    """Name this machine so that two of them never share a name: containers of one host share its kernel's boot id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def device_id(device: torch.device) -> str:
    """Name a device so that two ranks which see it under different numbers agree."""
    if device.type == "cpu":
        return "cpu"
    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} {getattr(properties, 'uuid', device)}"
