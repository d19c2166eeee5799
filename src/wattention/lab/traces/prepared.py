"""Models without contents that are kept for the next trace: making one takes as long as a third of a traced step.

A model is kept where a trace left it as it was, which is looked at: a module that remembers anything of the lengths it
met (a table of angles, a mask) is made anew for every trace, and so runs as in a process of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any, TypeVar

from torch import Tensor, nn

_MOST = 64
_KEPT: dict[Hashable, Any] = {}

Thing = TypeVar("Thing")


@contextmanager
def prepared(kind: Hashable, make: Callable[[], Thing], model_of: Callable[[Thing], nn.Module]) -> Iterator[Thing]:
    """Lend a model, or what holds it, for one trace.

    Args:
        kind: whatever decides what is made; None where it cannot be kept.
        make: makes it, where none is kept.
        model_of: returns the model of what was made.
    """
    kept = _KEPT.pop(kind, None)
    thing: Thing = make() if kept is None else kept
    before = list(_state(model_of(thing)))
    yield thing
    after = list(_state(model_of(thing)))
    if kind is not None and len(before) == len(after) and all(map(is_, before, after)):
        if len(_KEPT) >= _MOST:
            del _KEPT[next(iter(_KEPT))]
        _KEPT[kind] = thing


def _state(model: nn.Module) -> Iterable[object]:
    """Yield the attributes of all modules, and what is in those that hold others; tensors are not kept alive."""
    for module in model.modules():
        yield from _named(vars(module))
        for value in vars(module).values():
            if isinstance(value, dict):
                yield from _named(value)
            elif isinstance(value, (list, tuple, set)):
                yield from map(_mark, value)


def _named(values: dict[Any, Any]) -> Iterable[object]:
    yield from values
    yield from map(_mark, values.values())


def _mark(value: Any) -> object:
    """Return an object that is the same for the same value; there is but one reference of this kind to a tensor."""
    return weakref.ref(value) if isinstance(value, Tensor) else value
