"""Where the ranks of one cell meet, as the driver of a rank tells its child."""

from __future__ import annotations

from dataclasses import dataclass

from wattention.core.run_spec import Parallel


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
