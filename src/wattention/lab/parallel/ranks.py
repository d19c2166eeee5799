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
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wattention.core.records import Phase
from wattention.data.batches import Batches
from wattention.lab.parallel.meeting import Meeting
from wattention.lab.parallel.one_process import OneProcess
from wattention.lab.parallel.readings import Seat, merge_phases
from wattention.lab.parallel.rows import BatchRows
from wattention.meters.window import Panel

if TYPE_CHECKING:
    from wattention.model.gpt2 import GPT2


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
