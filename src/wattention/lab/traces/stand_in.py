"""A mechanism that cannot be traced, because what it runs depends on the data: its cost record stands in for it.

The stand-in layer has the record's number of parameters and keeps the record's bytes for the backward pass; its
products and bytes are one operator, ``cost-record``. Forward it reads input and parameters and writes what it keeps and
its output; the backward pass reads what was kept and writes the gradients; decoding reads the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from wattention.core.cost import Cost
from wattention.core.operators import Operator, Stage
from wattention.core.shapes import AttentionShape
from wattention.core.specs import ModelSpec
from wattention.lab.traces.runs import Run, Workload
from wattention.mechanisms.base import AttentionModule, Cache, Mechanism, MechanismConfig


class _Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rest: Tensor, out: Tensor, saved_bytes: int) -> Tensor:
        ctx.kept = torch.empty(saved_bytes, dtype=torch.uint8)
        ctx.save_for_backward(x, rest, out)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (*(torch.empty_like(tensor) for tensor in ctx.saved_tensors), None)


@dataclass
class _RecordCache:
    """The length of a cache and the record's bytes for it."""

    bytes_at: Callable[[int], int]
    length: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes for the tokens fed so far."""
        return self.bytes_at(self.length) if self.length else 0


class _RecordLayer(AttentionModule):
    def __init__(self, bytes_at: Callable[[int, int], int], width: int, parameters: int, saved_bytes: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width, bias=False)
        self.rest = nn.Parameter(torch.empty(max(0, parameters - width * width)))
        self._bytes_at, self._saved_bytes = bytes_at, saved_bytes

    def new_cache(self, batch: int) -> Cache:
        """Return a cache that only counts."""
        return _RecordCache(lambda tokens: self._bytes_at(batch, tokens))

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Return an output without contents."""
        if cache is not None:
            assert isinstance(cache, _RecordCache)
            cache.length += x.shape[1]
        saved = self._saved_bytes if torch.is_grad_enabled() else 0
        y: Tensor = _Keep.apply(x, self.rest, self.out.weight, saved)  # type: ignore[no-untyped-call]
        return y


def stand_in(run: Run) -> Mechanism:
    """Return a mechanism whose layers have the record's parameters and keep the record's bytes."""
    width = _element_bytes(run)

    def build(shape: AttentionShape, config: MechanismConfig, dropout: float) -> AttentionModule:
        def bytes_at(batch: int, tokens: int) -> int:
            return run.mechanism.cost(_shape(run.model, batch, tokens), config, width).cache_bytes

        cost = run.mechanism.cost(_shape(run.model, run.batch, run.tokens), config, width)
        return _RecordLayer(bytes_at, run.model.width, cost.parameters, cost.saved_bytes)

    return replace(run.mechanism, build=build)


def record_operators(workload: Workload, run: Run) -> tuple[Operator, ...]:
    """Return the operators of the attention layers, all layers, from the cost record."""
    width = _element_bytes(run)

    def cost_of(tokens: int) -> Cost:
        return run.mechanism.cost(_shape(run.model, run.batch, tokens), run.config, width)

    cost = cost_of(run.tokens)
    weights = cost.parameters * width
    fed = run.batch * (1 if workload == "decode" else run.tokens) * run.model.width * width

    def operator(stage: Stage, flop: int, read_bytes: int, written_bytes: int) -> Operator:
        return Operator(
            name="cost-record", kind="memory", part="attention", stage=stage, dtype=run.precision, dims=(), flop=flop,
            read_bytes=read_bytes, written_bytes=written_bytes, times=run.model.layers,
        )  # fmt: skip

    if workload == "train":
        return (
            operator("forward", cost.hardware_forward_flop, weights + fed, cost.saved_bytes + fed),
            operator("backward", cost.hardware_backward_flop, weights + cost.saved_bytes + fed, 2 * weights + fed),
        )
    flop = cost.hardware_forward_flop
    if workload == "decode":
        flop -= cost_of(run.tokens - 1).hardware_forward_flop if run.tokens > 1 else 0
        return (operator("forward", max(flop, 0), weights + cost.cache_bytes + fed, fed),)
    return (operator("forward", flop, weights + fed, cost.cache_bytes + fed),)


def _shape(model: ModelSpec, batch: int, tokens: int) -> AttentionShape:
    return AttentionShape(batch=batch, tokens=tokens, width=model.width, heads=model.heads)


def _element_bytes(run: Run) -> int:
    return 2 if run.precision == "bfloat16" else 4
