"""What decoding keeps: tensors that grow along the token axis, reserved geometrically so that a step copies nothing.

Appending one token to a plain ``torch.cat`` cache copies the whole cache, T^2 / 2 words over a generation. Doubling
the reserve copies each word at most twice in total, and a prompt comes with room for the first tokens after it.
``nbytes`` counts the tokens held, never the reserve.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SPARE_TOKENS = 64


class GrowingCache:
    """Several tensors (..., S, features) that are appended to together along their token axis, dim -2.

    Nothing is allocated before the first append; device and dtype are those of what is appended, so that a cache
    filled under autocast holds what the kernel will read.
    """

    def __init__(self) -> None:
        self._length = 0
        self._stores: tuple[Tensor, ...] = ()

    @property
    def length(self) -> int:
        """Tokens fed so far."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes needed for these tokens."""
        return sum(held.numel() * held.element_size() for held in self.held())

    def held(self) -> tuple[Tensor, ...]:
        """Return views of the tokens held, each (..., S, features)."""
        return tuple(store.narrow(-2, 0, self._length) for store in self._stores)

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Append tensors (..., T, features) and return all tokens held, each (..., S, features).

        They are views of the store; the first tokens are returned as they came, which may be denser.
        """
        first, end = self._length == 0, self._length + new[0].shape[-2]
        if not self._stores or end > self._stores[0].shape[-2]:
            self._reserve(max(end + _SPARE_TOKENS, 2 * self._length), new)
        for store, part in zip(self._stores, new, strict=True):
            store.narrow(-2, self._length, part.shape[-2]).copy_(part.detach())
        self._length = end
        return new if first else self.held()

    def _reserve(self, tokens: int, like: tuple[Tensor, ...]) -> None:
        held = self.held()
        self._stores = tuple(
            torch.empty(*p.shape[:-2], tokens, p.shape[-1], dtype=p.dtype, device=p.device) for p in like
        )
        for store, old in zip(self._stores, held, strict=False):
            store.narrow(-2, 0, self._length).copy_(old)
