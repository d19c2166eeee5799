"""GPT-2 with a slot for attention (Radford et al., 2019).

Token and position embeddings, L pre-norm blocks, a final norm, a head tied to the token embedding::

    x = x + attention(norm(x))
    x = x + mlp(norm(x))            mlp = Linear(C, M), GELU (tanh form), Linear(M, C)

Initialised as GPT-2 is: matrices normal(0, 0.02), those that write to the residual stream divided by sqrt(2 L),
biases zero, gains one. Every matrix draws from a generator of its own, seeded by the seed and its name, so two
mechanisms under one seed start from the same embeddings and MLPs.

Cost outside of attention: the closed forms of ``ModelSpec``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.core.specs import IGNORE, ModelSpec
from wattention.mechanisms.base import AttentionModule, Cache, Mechanism, MechanismConfig


class Block(nn.Module):
    """One pre-norm block: attention, then the MLP, each added to the residual stream."""

    def __init__(self, spec: ModelSpec, attention: AttentionModule) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(spec.width, bias=spec.bias)
        self.attention = attention
        self.norm2 = nn.LayerNorm(spec.width, bias=spec.bias)
        self.mlp = nn.Sequential(
            nn.Linear(spec.width, spec.mlp_width, bias=spec.bias),
            nn.GELU(approximate="tanh"),
            nn.Linear(spec.mlp_width, spec.width, bias=spec.bias),
        )
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Map x (B, T, C) to (B, T, C)."""
        x = x + self.dropout(self.attention(self.norm1(x), cache))
        y: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return y


class GPT2(nn.Module):
    """GPT-2 whose attention layers are a mechanism's.

    Args:
        spec: sizes of the model; it must fit the mechanism, else the mechanism raises ``UserError``.
        mechanism: the record of the attention mechanism.
        config: the mechanism's settings; its defaults when None.
        seed: seed of the initial parameters.
    """

    def __init__(
        self, spec: ModelSpec, mechanism: Mechanism, config: MechanismConfig | None = None, *, seed: int = 0
    ) -> None:
        super().__init__()
        self.spec = spec
        self.mechanism = mechanism.name
        self.config = config = mechanism.config() if config is None else config
        shape = AttentionShape(batch=1, tokens=spec.context, width=spec.width, heads=spec.heads)
        self.dropout = nn.Dropout(spec.dropout)
        on_cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        with torch.random.fork_rng([torch.cuda.current_device()] if on_cuda else []):
            torch.manual_seed(seed)  # for parameters of a mechanism that are neither matrices nor norms
            self.tokens = nn.Embedding(spec.vocabulary, spec.width)
            self.positions = nn.Embedding(spec.context, spec.width)
            self.blocks = nn.ModuleList(
                Block(spec, mechanism.build(shape, config, spec.dropout)) for _ in range(spec.layers)
            )
            self.norm = nn.LayerNorm(spec.width, bias=spec.bias)
            self.head = None if spec.tied else nn.Linear(spec.width, spec.vocabulary, bias=False)
        self._initialise(seed)

    def forward(
        self,
        idx: Tensor,
        targets: Tensor | None = None,
        caches: Sequence[Cache] | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Return logits (B, T, V) of idx (B, T), or with targets (B, T) the mean loss in nats per target.

        Targets equal to ``IGNORE`` have no loss. With caches, idx are the tokens after those already fed. ``positions``
        (T,) are those of the tokens where they are not consecutive: a process may hold any part of the sequence.
        """
        logits = self._logits(self._features(idx, caches, positions))
        if targets is None:
            return logits
        # float32 whatever the autocast: a sum over the vocabulary loses too much in bfloat16
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE)

    def new_caches(self, batch: int) -> list[Cache]:
        """Return empty caches for ``batch`` sequences, one per layer."""
        return [self._attention(block).new_cache(batch) for block in self.blocks]

    def feed(self, idx: Tensor, caches: Sequence[Cache]) -> Tensor:
        """Feed further tokens idx (B, T) and return the logits (B, V) of the one that follows.

        The whole prompt at once is prefill, one token at a time is decoding.
        """
        return self._logits(self._features(idx, caches)[:, -1])

    def _features(self, idx: Tensor, caches: Sequence[Cache] | None, positions: Tensor | None = None) -> Tensor:
        start = caches[0].length if caches else 0
        end = start + idx.shape[1]
        if end > self.spec.context:
            raise UserError(
                "the sequence is longer than the context",
                got=f"{end} tokens",
                wanted=f"at most {self.spec.context}",
                do="shorten it, or build the model with a longer context",
            )
        placed = self.positions.weight[start:end] if positions is None else self.positions(positions)
        x = self.dropout(self.tokens(idx) + placed)
        for layer, block in enumerate(self.blocks):
            x = block(x, caches[layer] if caches else None)
        out: Tensor = self.norm(x)
        return out

    def _logits(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.tokens.weight if self.head is None else self.head.weight)

    @staticmethod
    def _attention(block: nn.Module) -> AttentionModule:
        attention = block.attention
        assert isinstance(attention, AttentionModule)
        return attention

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        writes = {id(m) for b in self.blocks for m in (self._attention(b).out, b.get_submodule("mlp.2"))}
        for name, module in self.named_modules():
            if not isinstance(module, (nn.Linear, nn.Embedding)) or module.weight.is_meta:
                continue
            std = 0.02 / (2 * self.spec.layers) ** 0.5 if id(module) in writes else 0.02
            generator = torch.Generator(module.weight.device).manual_seed(_seed_of(seed, name))
            nn.init.normal_(module.weight, std=std, generator=generator)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)


def _seed_of(seed: int, name: str) -> int:
    """Mix the seed with a module's name into 63 bits, the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1


def parameter_count(model: nn.Module) -> int:
    """Count the model's parameters; a shared one counts once."""
    return sum(p.numel() for p in model.parameters())


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return the optimiser's groups: matrices decay, vectors (biases and gains) do not."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
