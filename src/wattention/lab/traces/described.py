"""What is known of a tensor that has no contents."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Described(NamedTuple):
    """A tensor as its metadata; where it lies in its storage is 0, 0 where that does not matter."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int = 0
    storage_bytes: int = 0

    @property
    def alone(self) -> Described:
        """The same without its place in the storage."""
        return Described(self.shape, self.strides, self.dtype)

    @property
    def numel(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def distinct_bytes(self) -> int:
        """Bytes of the distinct elements it refers to; expanded dimensions count once."""
        size: int = self.dtype.itemsize
        for length, stride in zip(self.shape, self.strides, strict=True):
            size *= length if stride or length == 0 else 1
        return size

    def transposed(self, first: int, second: int) -> Described:
        """Return it with two dimensions exchanged."""
        shape, strides = list(self.shape), list(self.strides)
        for sizes in (shape, strides):
            sizes[first], sizes[second] = sizes[second], sizes[first]
        return self._replace(shape=tuple(shape), strides=tuple(strides))


def described(value: Any) -> Any:
    """Put descriptions in place of the tensors inside nested tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return Described(tuple(value.shape), value.stride(), value.dtype)
    if isinstance(value, (tuple, list)):
        return [described(part) for part in value]
    if isinstance(value, dict):
        return {name: described(part) for name, part in value.items()}
    return value


def descriptions_in(value: Any) -> Iterator[Described]:
    """Yield the descriptions inside nested tuples and lists."""
    if isinstance(value, Described):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from descriptions_in(part)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors inside nested tuples and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
