"""The mechanism under test: fresh modules, inputs and the truth about them, all from one seed.

A module is built anew for every shape. Its linear weights are doubled, so that queries and keys have unit variance
and attention is not close to uniform, and its vectors (norm weights, biases) are stirred, so that one that is ignored
shows. The truth is the mechanism's reference in float64 on the module's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import AttentionModule, Mechanism


class ClauseFailed(Exception):  # noqa: N818 (a verdict, not an error)
    """A clause does not hold; the text says what was got and what was wanted."""


class ClauseSkipped(Exception):  # noqa: N818
    """A clause does not apply; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Output and gradients of one evaluation: ``y`` (B, T, C), ``gradients`` by name, ``x`` for the input's."""

    y: Tensor
    gradients: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One mechanism, its settings, where it runs, and the two shapes that the clauses use.

    ``short`` is small enough to try every pair of tokens; ``long`` crosses the blocks of every kernel.
    """

    mechanism: Mechanism
    config: Any
    device: torch.device
    dtype: torch.dtype
    seed: int
    short: AttentionShape
    long: AttentionShape
    _truths: dict[object, Evaluation] = field(default_factory=dict, repr=False)

    def module(self, shape: AttentionShape, seed: int | None = None) -> AttentionModule:
        """Build the mechanism for a shape with parameters drawn from ``seed``."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed if seed is None else seed)
            module = self.mechanism.build(shape, self.config, 0.0)
            with torch.no_grad():
                for part in module.modules():
                    if isinstance(part, nn.Linear):
                        part.weight.mul_(2)
                for parameter in module.parameters():
                    if parameter.ndim == 1:
                        parameter.add_(0.1 * torch.randn_like(parameter))
        return module.to(device=self.device, dtype=self.dtype)

    def tokens(self, shape: AttentionShape, seed: int | None = None, salt: int = 0) -> Tensor:
        """Return an input (B, T, C) of unit variance; another ``salt`` gives another, independent input."""
        generator = torch.Generator().manual_seed(1_000_003 * (self.seed if seed is None else seed) + salt)
        x = torch.randn(shape.batch, shape.tokens, shape.width, generator=generator)
        return x.to(device=self.device, dtype=self.dtype)

    def fast(self, shape: AttentionShape, seed: int | None = None) -> Evaluation:
        """Run the module forward and backward."""
        module = self.module(shape, seed)
        x = self.tokens(shape, seed).requires_grad_()
        parameters = dict(module.named_parameters())
        return _evaluate(module, x, parameters, self._cotangent(shape, seed))

    def truth(self, shape: AttentionShape, seed: int | None = None, dtype: torch.dtype = torch.float64) -> Evaluation:
        """Run the reference forward and backward in ``dtype`` on the CPU; computed once for each question."""
        key = (shape, seed, dtype)
        if key not in self._truths:
            module = self.module(shape, seed).cpu()
            state = {name: _as(tensor, dtype) for name, tensor in module.state_dict().items()}
            trained = {name: state[name].requires_grad_() for name, _ in module.named_parameters()}
            x = self.tokens(shape, seed).cpu().to(dtype).requires_grad_()
            reference = self.mechanism.reference
            self._truths[key] = _evaluate(
                lambda x: reference(state, x, shape, self.config), x, trained, self._cotangent(shape, seed)
            )
        return self._truths[key]

    def _cotangent(self, shape: AttentionShape, seed: int | None) -> Tensor:
        return self.tokens(shape, seed, salt=77)


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.detach().to(dtype) if tensor.is_floating_point() else tensor.detach()


def _evaluate(
    function: Callable[[Tensor], Tensor], x: Tensor, parameters: Mapping[str, Tensor], cotangent: Tensor
) -> Evaluation:
    """Evaluate a function of x, and the gradients of <y, cotangent> with respect to x and the parameters."""
    y = function(x)
    inputs = {"x": x, **parameters}
    if not y.requires_grad:
        raise ClauseFailed("the output carries no gradient")
    found = torch.autograd.grad(y, list(inputs.values()), cotangent.to(y), allow_unused=True, materialize_grads=True)
    return Evaluation(y=y.detach(), gradients=dict(zip(inputs, found, strict=True)))
