"""What a view of a tensor is: arithmetic on sizes and strides. Half of what runs in a trace are views.

Asking torch is as right and takes ten times as long. What takes more than a line (another shape of elements that are
not in order) and what is wrong are left to it, with its own words. Tests hold the two to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from wattention.lab.traces.described import Described

Views = Described | tuple[Described, ...]


def views_of(func: Any, args: Sequence[Any]) -> Views | None:
    """Return what a view is, or several; None where torch must be asked.

    Args:
        func: torch's overload.
        args: its positional arguments, the first one described; there are no others.
    """
    rule = _RULES.get(func)
    if rule is None or not isinstance(args[0], Described):
        return None
    try:
        return rule(*args)
    except IndexError:
        return None


def _placed(x: Described, shape: Sequence[int], strides: Sequence[int], further: int = 0) -> Described:
    """Return a view whose first element lies so many elements further."""
    return Described(tuple(shape), tuple(strides), x.dtype, x.offset + further, x.storage_bytes)


def _same(x: Described) -> Described:
    return x


def _transpose(x: Described, first: int, second: int) -> Described:
    return x.transposed(first, second)


def _t(x: Described) -> Described | None:
    return x.transposed(0, 1) if len(x.shape) == 2 else None


def _permute(x: Described, order: Sequence[int]) -> Described | None:
    if sorted(d % len(x.shape) for d in order if x.shape) != list(range(len(x.shape))):
        return None
    return _placed(x, [x.shape[d] for d in order], [x.strides[d] for d in order])


def _unsqueeze(x: Described, dim: int) -> Described | None:
    at = dim if dim >= 0 else dim + len(x.shape) + 1
    if not 0 <= at <= len(x.shape):
        return None
    stride = x.shape[at] * x.strides[at] if at < len(x.shape) else 1
    return _placed(x, (*x.shape[:at], 1, *x.shape[at:]), (*x.strides[:at], stride, *x.strides[at:]))


def _squeeze(x: Described, dim: int) -> Described | None:
    if not x.shape:
        return None
    return _without(x, dim % len(x.shape)) if x.shape[dim] == 1 else x


def _without(x: Described, dim: int, further: int = 0) -> Described:
    return _placed(x, x.shape[:dim] + x.shape[dim + 1 :], x.strides[:dim] + x.strides[dim + 1 :], further)


def _select(x: Described, dim: int, index: int) -> Described | None:
    size = x.shape[dim]
    if not -size <= index < size:
        return None
    return _without(x, dim % len(x.shape), index % size * x.strides[dim])


def _unbind(x: Described, dim: int = 0) -> tuple[Described, ...]:
    size, stride = x.shape[dim], x.strides[dim]
    at = dim % len(x.shape)
    return tuple([_without(x, at, index * stride) for index in range(size)])


def _slice(
    x: Described, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Described | None:
    if step < 1:
        return None
    chosen = range(x.shape[dim])[start:end:step]
    at = dim % len(x.shape)
    strides = list(x.strides)
    strides[at] *= step
    first = slice(start, None).indices(x.shape[at])[0]
    return _placed(x, (*x.shape[:at], len(chosen), *x.shape[at + 1 :]), strides, first * x.strides[at])


def _expand(x: Described, sizes: Sequence[int]) -> Described | None:
    new = len(sizes) - len(x.shape)
    if new < 0:
        return None
    shape, strides = list(sizes), [0] * new + list(x.strides)
    for d in range(len(sizes) - 1, -1, -1):
        own = x.shape[d - new] if d >= new else 1
        if d >= new and sizes[d] == -1:
            shape[d] = own
        if shape[d] != own:
            strides[d] = 0
        elif d < new and x.shape:  # a new dimension of one element has the stride it would have in order
            strides[d] = shape[d + 1] * strides[d + 1]
        if shape[d] < 0 or own not in (1, shape[d]):
            return None
    return _placed(x, shape, strides)


def _as_strided(
    x: Described, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Described | None:
    begin = x.offset if offset is None else offset
    last = begin + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if 0 in shape or min((begin, *strides)) < 0 or (last + 1) * x.dtype.itemsize > x.storage_bytes:
        return None
    return _placed(x, shape, strides, begin - x.offset)


def _view(x: Described, sizes: Sequence[int]) -> Described | None:
    elements = x.numel
    if elements == 0 or min(sizes, default=1) < -1 or x.strides != _in_order(x.shape):
        return None
    inferred = [d for d, size in enumerate(sizes) if size == -1]
    known = prod(size for size in sizes if size != -1)
    if len(inferred) > 1 or known <= 0 or elements % known or (known != elements and not inferred):
        return None
    shape = [elements // known if size == -1 else size for size in sizes]
    return _placed(x, shape, _in_order(shape))


def _in_order(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [1] * len(shape), 1
    for d in range(len(shape) - 1, -1, -1):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)


_aten = torch.ops.aten
_RULES: dict[Any, Callable[..., Views | None]] = {
    _aten.detach.default: _same,
    _aten.alias.default: _same,
    _aten.transpose.int: _transpose,
    _aten.t.default: _t,
    _aten.permute.default: _permute,
    _aten.unsqueeze.default: _unsqueeze,
    _aten.squeeze.dim: _squeeze,
    _aten.select.int: _select,
    _aten.unbind.int: _unbind,
    _aten.slice.Tensor: _slice,
    _aten.expand.default: _expand,
    _aten.as_strided.default: _as_strided,
    _aten.view.default: _view,
    _aten._unsafe_view.default: _view,
}
