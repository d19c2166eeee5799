"""What an operator returns, told from descriptions of what it is given: asked once, and kept.

A description is a tensor's metadata. The first time an operator meets some descriptions it runs on torch's meta device.
Many operators care for no size: they treat elements or rows alike, or multiply. Of those the answer is kept under names
that stand for the sizes, so that a length nobody asked about before is answered without asking::

    add (8, 1000, 768) + (8, 1000, 768)   ->   add (a, b, c) + (a, b, c)  =  (a, b, c)   ->   (8, 1000, 768)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import torch._meta_registrations  # the meta kernels that torch writes in Python; importing torch leaves them out
from torch import Tensor

from wattention.lab.traces.described import Described
from wattention.lab.traces.views import Views, views_of

Examine = Callable[[Any, Sequence[Any], Mapping[str, Any], Any], Any]
"""What else to tell of a call from its sizes: (operator, args, kwargs, result), tensors as their descriptions."""


class Value(NamedTuple):
    """Any other argument that is not an integer; its type tells True and 1.0 from 1, which are equal."""

    type: type
    value: Any


class Result(NamedTuple):
    """One tensor of a result: what it is, which argument's storage it shares, and whether it is that very argument."""

    what: Described
    alone: Described
    """The same without its place in the storage."""
    shares: int | None
    same: bool


Call = tuple[Any, ...]
Named = tuple[tuple[str, Any], ...]


@lru_cache(maxsize=1 << 14)
def outcome(func: Any, call: Call, named: Named, examine: Examine | None) -> tuple[Any, Any]:
    """Return the results of a call and what was examined; equal functions share what they found.

    Args:
        func: torch's overload.
        call, named: its arguments, as :class:`Described`, integers and :class:`Value`; None for a device or generator.
        examine: asked as well.

    Raises:
        NotImplementedError: for what descriptions do not tell; else whatever the operator raises.
    """
    args, kwargs = [_plain(value) for value in call], {name: _plain(value) for name, value in named}
    views = None if kwargs else views_of(func, args)
    results = _under_other_names(func, call, named) if views is None and _cares_for_no_size(func) else _shared(views)
    if results is None:
        results = _asked(func, call, named)
    return results, None if examine is None else examine(func, args, kwargs, _plain(results))


def _shared(views: Views | None) -> Any:
    """Make results of what shares the storage of the first argument."""
    if isinstance(views, Described):
        return Result(views, views.alone, 0, False)
    return None if views is None else tuple([Result(view, view.alone, 0, False) for view in views])


def _plain(value: Any) -> Any:
    """Take descriptions and values out of what they are wrapped in."""
    if isinstance(value, Described):
        return value
    if isinstance(value, Result):
        return value.what
    if isinstance(value, Value):
        return [_plain(part) for part in value.value] if value.type in (list, tuple) else value.value
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _asked(func: Any, call: Call, named: Named) -> Any:
    """Run the operator on the meta device and describe what it returns."""
    metas: list[Tensor] = []
    args, kwargs = _arguments(call, named, metas)
    return _results(_run(func, args, kwargs, metas), metas)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], metas: list[Tensor]) -> Any:
    before = [(x.shape, x.stride()) for x in metas] if func._schema.is_mutable else []
    out = func(*args, **(kwargs | {"device": torch.device("meta")} if _takes_device(func) else kwargs))
    if before and before != [(x.shape, x.stride()) for x in metas]:
        raise NotImplementedError(f"{func} changes the shape of its argument")
    return out


@cache
def _takes_device(func: Any) -> bool:
    return any(argument.name == "device" for argument in func._schema.arguments)


def _arguments(call: Call, named: Named, metas: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple([_meta(value, metas) for value in call]), {name: _meta(value, metas) for name, value in named}


def _meta(value: Any, metas: list[Tensor]) -> Any:
    """Make an argument; its tensors are added to ``metas``."""
    if isinstance(value, Described):
        if value.storage_bytes:
            whole = torch.empty(value.storage_bytes // value.dtype.itemsize, dtype=value.dtype, device="meta")
            made = whole.as_strided(value.shape, value.strides, value.offset)
        else:
            made = torch.empty_strided(value.shape, value.strides, dtype=value.dtype, device="meta")
        metas.append(made)
        return made
    if not isinstance(value, Value):
        return value
    return value.type([_meta(part, metas) for part in value.value]) if value.type in (list, tuple) else value.value


def _results(out: Any, metas: list[Tensor]) -> Any:
    if isinstance(out, Tensor):
        if out.layout != torch.strided:
            raise NotImplementedError(f"a tensor of layout {out.layout}")
        storage = out.untyped_storage()
        what = Described(tuple(out.shape), out.stride(), out.dtype, int(out.storage_offset()), storage.nbytes())
        same = next((place for place, x in enumerate(metas) if x is out), None)
        owners = (place for place, x in enumerate(metas) if x.untyped_storage()._cdata == storage._cdata)
        shares = next(owners, None)
        return Result(what, what.alone, shares if same is None else same, same is not None)
    if isinstance(out, (list, tuple)):
        return tuple([_results(part, metas) for part in out])
    return out


# --- names in place of sizes ------------------------------------------------------------------------------------------

_BY_ROWS_OR_PRODUCTS = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "embedding", "embedding_dense_backward", "native_layer_norm",
     "native_layer_norm_backward", "_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data",
     "nll_loss_forward", "nll_loss_backward", "sum", "logsumexp", "argmax", "sort", "gather", "scatter",
     "scatter_add", "index_select", "tril", "copy", "clone", "_to_copy", "zero", "fill", "empty_like", "zeros_like",
     "ones_like", "full_like"}
)  # fmt: skip
"""Also in place, where the name ends with a dash."""
_NAMES = (10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079)
"""Large prime numbers, so that no size is a product of others by accident."""
_SMALL = 8
"""Sizes up to here keep their name: a program may mean such numbers, and 1 is special."""


class _CannotBeNamedError(Exception):
    """A tensor that its sizes and the order of its dimensions do not tell, or too many sizes."""


@cache
def _cares_for_no_size(func: Any) -> bool:
    """Whether other sizes, equal where these are equal, give the same result with those in their place."""
    name = func._schema.name.removeprefix("aten::")
    return torch.Tag.pointwise in func.tags or name in _BY_ROWS_OR_PRODUCTS or name.rstrip("_") in _BY_ROWS_OR_PRODUCTS


def _under_other_names(func: Any, call: Call, named: Named) -> Any:
    """Return the results, asked about names in place of sizes; None where that cannot be."""
    names: dict[int, int] = {}
    try:
        only_types = torch.Tag.pointwise in func.tags
        call = tuple([_renamed(value, names, only_types) for value in call])
        named = tuple([(name, _renamed(value, names, only_types)) for name, value in named])
        results = _asked_by_name(func, call, named)
        return _sized(results, {name: size for size, name in names.items()})
    except (_CannotBeNamedError, RuntimeError):  # the operator refuses, or the names are too large for it
        return None


_asked_by_name = lru_cache(maxsize=1 << 12)(_asked)


def _renamed(value: Any, names: dict[int, int], only_types: bool) -> Any:
    """Give every size of an argument its name; ``only_types``: of numbers no more than their type matters."""
    if isinstance(value, Described):
        return _of_shape(value, tuple([_name(size, names) for size in value.shape]))
    if type(value) is int:
        return 1 if only_types else names.get(value, value)
    if isinstance(value, Value) and value.type in (list, tuple):
        return Value(value.type, tuple([_renamed(part, names, only_types) for part in value.value]))
    return Value(float, 1.0) if only_types and isinstance(value, Value) and value.type is float else value


def _name(size: int, names: dict[int, int]) -> int:
    if size <= _SMALL:
        return size
    if size not in names:
        if len(names) == len(_NAMES):
            raise _CannotBeNamedError
        names[size] = _NAMES[len(names)]
    return names[size]


def _sized(results: Any, sizes: Mapping[int, int]) -> Any:
    """Put the sizes back in place of their names."""
    if isinstance(results, Result):
        if results.shares is not None and not results.same:
            raise _CannotBeNamedError
        what = _of_shape(results.what, tuple([sizes.get(n, n) for n in results.what.shape]))
        return results._replace(what=what, alone=what.alone)
    if isinstance(results, (list, tuple)):
        return tuple([_sized(part, sizes) for part in results])
    return results


def _of_shape(what: Described, shape: tuple[int, ...]) -> Described:
    """Return a dense tensor of another shape whose dimensions lie in the same order."""
    order = sorted(range(len(shape)), key=lambda d: (-what.strides[d], d))
    strides = [1] * len(shape)
    before, after = 1, 1
    for d in reversed(order):
        if what.strides[d] != before:
            raise _CannotBeNamedError
        strides[d] = after
        before, after = before * what.shape[d], after * shape[d]
    return Described(shape, tuple(strides), what.dtype, 0, after * what.dtype.itemsize if what.storage_bytes else 0)
