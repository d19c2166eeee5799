"""Loops over groups of heads, whose rounds are alike: the same operators on the same sizes.

Kernels work on a few heads at a time, so that what they need in between stays in cache, or small. A trace of a model
(``lab/traces/``) runs one round of such a loop and counts it for all. It must be told which loops these are. A round
writes its results in place, for a list of them would come out too short, and leaves nothing behind that adds to the
peak of the next one: scratch that rounds share is made before, and the names of a round are those of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor

from wattention.mechanisms.target import target_of

CPU_GROUP_TOKENS = 4096
"""Heads × tokens worked on at a time on a CPU: about 1 MiB for each temporary of 64 features."""
DEVICE_GROUP_TOKENS = 65536
"""... and on a GPU: a thousand blocks of 64 tokens, some for each of its hundred processors."""

Round = TypeVar("Round")
Repeating = Callable[[int], AbstractContextManager[None]]
"""What a trace offers: while the manager is open, every operator counts so many times."""

_REPEATING: ContextVar[Repeating | None] = ContextVar("wattention_repeating", default=None)


@contextmanager
def rounds_counted_by(repeating: Repeating) -> Iterator[None]:
    """Run one round of every loop over :func:`alike`, and let it count for all."""
    token = _REPEATING.set(repeating)
    try:
        yield
    finally:
        _REPEATING.reset(token)


def alike(rounds: Sequence[Round]) -> Iterator[Round]:
    """Yield the rounds of a loop that all run the same operators on the same sizes and write in place."""
    repeating = _REPEATING.get()
    if repeating is None or len(rounds) < 2:
        yield from rounds
        return
    with repeating(len(rounds)):
        yield rounds[0]


def in_one_row(x: Tensor) -> Tensor:
    """Join the heads of all sequences where one sequence does not fill a device: (B, H, ...) -> (1, B · H, ...).

    On a CPU x stays as it is: joining would copy it, and one head is enough there.
    """
    return x if on_cpu(x) else x.reshape(1, -1, *x.shape[2:])


def groups_of_heads(x: Tensor, tokens: int) -> Iterator[tuple[int, slice]]:
    """Yield the indices (row, heads) of the parts of x (B, H, ...) to work on at a time, in rounds that are alike.

    ``tokens`` of each head are worked on: on a CPU as many heads as its cache holds, elsewhere as many as fill a device
    without much memory for what is between.
    """
    B, H = x.shape[:2]
    group = heads_at_a_time(H, tokens, on_cpu=on_cpu(x))
    for first in alike(range(0, B * H, group)):
        yield first // H, slice(first % H, first % H + group)


def heads_at_a_time(heads: int, tokens: int, *, on_cpu: bool) -> int:
    """Return the most heads that divide all of them and have at most a group's tokens together, at least 1."""
    most = CPU_GROUP_TOKENS if on_cpu else DEVICE_GROUP_TOKENS
    return next(n for n in range(max(1, min(heads, most // tokens)), 0, -1) if heads % n == 0)


def on_cpu(x: Tensor) -> bool:
    """Whether a kernel is to take its form for a CPU."""
    return target_of(x.device) == "cpu"
