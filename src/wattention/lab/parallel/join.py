"""The ranks of one cell meet: a process group of their own, and each rank's way to spread a step."""

from __future__ import annotations

from datetime import timedelta

import torch

from wattention.core.errors import UserError
from wattention.lab.parallel.meeting import Meeting
from wattention.lab.parallel.one_process import OneProcess
from wattention.lab.parallel.ranks import Replicas, Shards


def join(meeting: Meeting, device: str) -> OneProcess:
    """Meet the other ranks and return this rank's way to spread a step; ``device`` is this rank's own.

    Raises:
        UserError: this machine has no such device.
    """
    from torch import distributed
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    backend = "gloo"
    if device != "cpu":
        if meeting.local_rank >= torch.cuda.device_count():
            raise UserError(
                "more ranks than GPUs on one machine",
                got=f"local rank {meeting.local_rank}",
                wanted=f"at most {torch.cuda.device_count()} ranks here",
                do="lower --nproc-per-node",
            )
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    timeout = timedelta(seconds=meeting.timeout_s)
    store = TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
    distributed.init_process_group(
        backend,
        store=PrefixStore(meeting.name, store),
        rank=meeting.rank,
        world_size=meeting.size,
        timeout=timeout,
    )
    if meeting.mode == "context":
        from wattention.lab.parallel.context import ContextParallel

        return ContextParallel(meeting, device, backend)
    return {"ddp": Replicas, "fsdp": Shards}[meeting.mode](meeting, device, backend)
