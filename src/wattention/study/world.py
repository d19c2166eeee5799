"""This process's place under torchrun, and what a run asked for may mean there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattention.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class World:
    """This process's place under torchrun, from its environment."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    port: int
    served: bool
    """Whether torchrun itself serves the store; else rank 0 does."""
    attempt: str
    """torchrun's run and how often it restarted it."""


def find_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """Return this process's place under torchrun, or None outside of it."""
    if "TORCHELASTIC_RUN_ID" not in environment:
        return None
    return World(
        rank=int(environment["RANK"]),
        size=int(environment["WORLD_SIZE"]),
        local_rank=int(environment["LOCAL_RANK"]),
        local_size=int(environment["LOCAL_WORLD_SIZE"]),
        host=environment["MASTER_ADDR"],
        port=int(environment["MASTER_PORT"]),
        served=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=f"{environment['TORCHELASTIC_RUN_ID']}/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}",
    )


def choose_parallel(asked: str | None, world: World | None) -> dict[str, Any]:
    """Return the fields of a run that say how it is spread: what was asked for, else ddp under torchrun.

    Raises:
        UserError: several devices were asked for outside torchrun, or none under it.
    """
    if world is None:
        if asked not in (None, "none"):
            raise UserError(
                "several devices for one model are started by torchrun",
                got=f"--parallel {asked} in one process",
                do=f"torchrun --nproc-per-node N -m wattention compare --parallel {asked} ...",
            )
        return {}
    if asked == "none" and world.size > 1:
        raise UserError(
            "ranks without work",
            got=f"--parallel none under torchrun with {world.size} ranks",
            wanted="ddp, fsdp, context",
        )
    return {"parallel": asked or "ddp", "ranks": world.size}
