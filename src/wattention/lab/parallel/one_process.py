"""What a training step asks of the way it is spread; here one process takes the whole of it, which is the base of all.

A trainer and a stage know this class alone: whether there are ranks, and how they share the work, is said in ranks.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from wattention.core.records import Phase
from wattention.core.run_spec import Parallel
from wattention.data.batches import Batches
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
