"""What a mechanism file must export, and the protocol its module follows.

A mechanism is one file with one frozen record ``MECHANISM = Mechanism(...)``: a configuration, a module, a slow and
obvious float64 reference, an exact cost, its paper, and what it does not support. A user's own file exports the same
record and is treated alike: ``wattention check my_attention.py``.

The contract of a module::

    y = module(x)                    # x (B, T, C) -> y (B, T, C), causal, any T up to shape.tokens
    cache = module.new_cache(B)      # empty; grows as tokens are fed
    y = module(x_prompt, cache)      # prefill: the same numbers as the full pass
    y = module(x_next, cache)        # decode: any further tokens, usually (B, 1, C)

Every module ends in an output projection ``module.out`` (an ``nn.Linear`` to C features): GPT-2 scales its
initialisation with depth. It runs once a pass and reads the joined heads, head h in the h-th of H equal blocks. Linear
layers carry a bias, as GPT-2's do, unless the paper says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from wattention.core.attended import AttendedPairs
from wattention.core.catalog import Catalog
from wattention.core.cost import Cost
from wattention.core.errors import UserError, unknown_name
from wattention.core.shapes import AttentionShape


class MechanismConfig(BaseModel):
    """Base of every mechanism's own settings: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@runtime_checkable
class Cache(Protocol):
    """What decoding keeps of the tokens seen so far."""

    @property
    def length(self) -> int:
        """Tokens fed so far."""

    @property
    def nbytes(self) -> int:
        """Bytes the cache needs for these tokens (not what an allocator reserved for later ones)."""


class AttentionModule(nn.Module):
    """Base of every attention layer: the protocol above."""

    out: nn.Linear

    def new_cache(self, batch: int) -> Cache:
        """Return an empty cache for ``batch`` sequences, on the module's device and in its dtype."""
        raise NotImplementedError

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attend causally: x (B, T, C) -> (B, T, C); with a cache, x are the tokens after those already fed."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Something a mechanism does not do, and why."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """All facts of one attention mechanism.

    Args:
        name: the file's name; how users ask for it.
        title: what people call it.
        paper: citation with the numbers of the equations implemented.
        config: class of its settings; its defaults are the mechanism as named.
        build: (shape, config, dropout) -> module; ``shape.tokens`` is the context, the longest T it will see.
            Raises ``UserError`` for settings that cannot be and ``UnsupportedError`` for what ``limits`` lists.
        reference: (parameters, x, shape, config) -> y, the definition of correct: plain loops or plain einsums in the
            dtype of ``x``, differentiable, where ``parameters`` is the module's ``state_dict`` in that dtype.
        cost: (shape, config, bytes_per_element) -> exact cost of one layer.
        exact: softmax attention over all earlier tokens, so output t depends on token 0.
        subquadratic: time and memory grow slower than T x T; nothing of size T x T may be allocated.
        strictly_causal: output t is independent of tokens after t.
        causal_rounding: empty when causality holds bit for bit; else why only within rounding.
        heads_sharing: (shape, config) -> how many heads may read one projected feature: 1 for plain multi-head
            attention, H / G where key/value heads are shared by groups, H where all heads share.
        attends: (shape, config) -> the pairs of the inner attention, from which data movement is predicted; None where
            the two-level model has no form for it.
        unavailable: (device type, dtype name, shape, config) -> None, or the reason it cannot run there.
        limits: what it does not support, with reasons.
    """

    name: str
    title: str
    paper: str
    config: type[MechanismConfig]
    build: Callable[[AttentionShape, Any, float], AttentionModule]
    reference: Callable[[Mapping[str, Tensor], Tensor, AttentionShape, Any], Tensor]
    cost: Callable[[AttentionShape, Any, int], Cost]
    exact: bool
    subquadratic: bool
    strictly_causal: bool = True
    causal_rounding: str = ""
    heads_sharing: Callable[[AttentionShape, Any], int] = lambda shape, config: 1
    attends: Callable[[AttentionShape, Any], AttendedPairs] | None = None
    unavailable: Callable[[str, str, AttentionShape, Any], str | None] = lambda device, dtype, shape, config: None
    limits: tuple[Limit, ...] = ()

    def configure(self, settings: Mapping[str, Any]) -> MechanismConfig:
        """Return the validated configuration for a user's settings.

        Raises:
            UserError: a setting that the mechanism does not have (with near matches), or a value that does not fit.
        """
        try:
            return self.config(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                raise unknown_name(f"setting of {self.name}", name, self.config.model_fields) from None
            raise UserError(f"{self.name}.{name}", got=repr(first["input"]), wanted=first["msg"]) from None


MECHANISMS: Catalog[Mechanism] = Catalog(
    kind="mechanism",
    package="wattention.mechanisms",
    export="MECHANISM",
    record=Mechanism,
    not_plugins=frozenset({"base", "caches", "costs", "fused", "multihead", "reference", "target"}),
)
