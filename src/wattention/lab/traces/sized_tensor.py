"""Tensors that have sizes, strides, a dtype and a device, but no contents, and a mode in which operators yield them.

What an operator returns is told by descriptions (:mod:`.outcomes`). torch's own FakeTensorMode answers the same
questions for more kinds of tensors, and takes five to ten times as long; a traced step has hundreds of operators. Tests
hold the two to each other. What this mode does not know (a value, a sparse tensor, a resize) is an error, and the
caller asks the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from wattention.lab.traces.described import Described
from wattention.lab.traces.outcomes import Examine, Result, Value, outcome

_CPU = torch.device("cpu")

NOT_OPERATORS = ("prim", "profiler")
"""Namespaces of questions about a tensor, and of marks."""
Observer = Callable[[Any, tuple[Any, ...], Any], None]
"""Who is told of an operator that has run: (what was examined, its positional arguments, its result)."""


class SizedTensor(Tensor):
    """A tensor without contents; its storage has a size and nothing else. :class:`SizesOnly` makes them."""

    described: Described
    """With its place in the storage, ..."""
    described_alone: Described
    """... and without."""

    @staticmethod
    def __new__(cls, what: Described, alone: Described, shares: SizedTensor | None = None) -> SizedTensor:
        """Return a tensor of this description, with and without its place, on its own storage or that of another."""
        made: SizedTensor = Tensor._make_wrapper_subclass(
            cls, what.shape, strides=what.strides, storage_offset=what.offset, dtype=what.dtype, device=_CPU,
            storage_size=what.storage_bytes,
        )  # fmt: skip
        made.described = what
        made.described_alone = alone
        if shares is not None:
            torch._functionalize_unsafe_set(made, shares)
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Refuse: without the mode nobody says what an operator returns."""
        raise RuntimeError(f"{func} on a tensor without contents, outside of the mode that made it")


class SizesOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, operators return tensors without contents that say they are on the CPU.

    Operators made of others are taken apart. Constants of the program, which do have contents, stay as they are among
    themselves, and unseen.

    Args:
        examine: what else to tell of every call; ``observer``, where there is one, is given it.

    Errors: the operator's own, and ``NotImplementedError`` for what sizes do not tell.
    """

    def __init__(self, examine: Examine | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observer: Observer | None = None
        self._examine = examine

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Say that nothing here is compiled: being left out of a compilation would cost as much as the rest."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the operator would, without contents."""
        kwargs = kwargs or {}
        if func.namespace in NOT_OPERATORS:
            return func(*args, **kwargs)
        if is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        given: list[Tensor] = []
        moves = func.is_view
        call = tuple([_described(value, given, moves) for value in args])
        named = tuple([(name, _described(value, given, moves)) for name, value in kwargs.items()]) if kwargs else ()
        if given and type(given[0]) is not SizedTensor and not any(isinstance(x, SizedTensor) for x in given):
            return func(*args, **kwargs)
        results, examined = outcome(func, call, named, self._examine)
        out = _tensors(results, given, moves)
        if self.observer is not None:
            self.observer(examined, args, out)
        return out


@cache
def is_composite(func: Any) -> bool:
    """Whether an operator is made of others, which a pass without autograd hands over whole."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _described(value: Any, given: list[Tensor], moves: bool) -> Any:
    """Describe an argument and collect its tensors; ``moves``: with their places, which views change."""
    if type(value) is SizedTensor:
        given.append(value)
        return value.described if moves else value.described_alone
    if type(value) is int:
        return value
    if isinstance(value, Tensor):
        given.append(value)
        offset, size = (int(value.storage_offset()), value.untyped_storage().nbytes()) if moves else (0, 0)
        return Described(tuple(value.shape), value.stride(), value.dtype, offset, size)
    if isinstance(value, (list, tuple)):
        return Value(type(value), tuple([_described(part, given, moves) for part in value]))
    if isinstance(value, (torch.device, torch.Generator)):
        return None
    return Value(type(value), value)


def _tensors(results: Any, given: list[Tensor], moves: bool) -> Any:
    """Make the tensors of a result."""
    if isinstance(results, Result):
        what, alone, shares, same = results
        if shares is None:
            return SizedTensor(what, alone)
        source = given[shares]
        if not isinstance(source, SizedTensor):
            raise NotImplementedError("a constant is changed by tensors without contents")
        if same:
            return source
        whole = source.described
        offset = what.offset if moves else what.offset + whole.offset
        placed = Described(what.shape, what.strides, what.dtype, offset, whole.storage_bytes)
        return SizedTensor(placed, alone, source)
    if isinstance(results, (list, tuple)):
        return type(results)([_tensors(part, given, moves) for part in results])
    return results
