"""Write down every operator that runs on fake tensors, where in the model it belongs, and every byte that lives."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from wattention.core.operators import MemoryKind, Part, Stage
from wattention.lab.traces.operator_facts import OperatorFacts, operator_facts, tensors_of
from wattention.lab.traces.sized_tensor import NOT_OPERATORS, SizesOnly, is_composite


@dataclass(frozen=True)
class Place:
    """Where in the model an operator belongs; ``in_layer`` where it is one of every layer."""

    part: Part
    in_layer: bool = False


@dataclass(kw_only=True)
class Log:
    """What a run leaves: operators with their place, and storages as they come and go."""

    operators: Counter[tuple[OperatorFacts, Place, Stage]] = field(default_factory=Counter)
    kinds: list[MemoryKind] = field(default_factory=list)
    """Of each storage, in the order they came; ..."""
    dims: list[int] = field(default_factory=list)
    """... the dimensions of the tensor it came with, ..."""
    sizes: list[int] = field(default_factory=list)
    """... and its bytes."""
    events: list[tuple[str, int, int]] = field(default_factory=list)
    """(phase, storage, 1 or -1): it came or was freed; :data:`MARK` where the layer's forward pass begins and ends."""
    weight_bytes: int = 0
    """Parameters of the layer, ..."""
    buffer_bytes: int = 0
    """... and its buffers."""
    cache_bytes: int = 0
    """What decoding keeps of the layer."""


MARK = ("mark", 0, 0)


class Recorder:
    """Writes the log; ``stage`` and ``place`` are kept by whoever runs the model."""

    def __init__(self) -> None:
        self.log = Log()
        self.stage: Stage = "forward"
        self.place = Place("embedding")
        self.boundaries: list[tuple[int, Place]] = []
        self.layer_storages: set[int] = set()
        """Parameters of the layer, their gradients and moments."""
        self._times = 1
        self._storages: dict[int, tuple[int, Any]] = {}
        self._sequence: list[int] = []

    def saw(self, facts: OperatorFacts, args: tuple[Any, ...], out: Any) -> None:
        """Write down an operator that has just run."""
        if self.stage == "backward":
            self.place = self._place_of_node()
        if self.stage == "update":
            for share, place in self._shares(facts, args):
                self.log.operators[share, place, self.stage] += self._times
        else:
            self.log.operators[facts, self.place, self.stage] += self._times
        if facts.kind != "view" or "empty" in facts.name:
            for tensor in tensors_of(out):
                self.track(tensor, self._kind_here())

    def enter(self, place: Place) -> None:
        """Say where the following forward operators belong."""
        self.place = place
        self.boundaries.append((torch._C._autograd._get_sequence_nr(), place))

    @contextmanager
    def repeating(self, times: int) -> Iterator[None]:
        """Count every operator so many times: it stands for as many rounds of a loop."""
        self._times *= times
        try:
            yield
        finally:
            self._times //= times

    def mark(self) -> None:
        """Say that the layer's forward pass begins or ends here."""
        self.log.events.append(MARK)

    def track(self, tensor: Tensor, kind: MemoryKind) -> None:
        """Follow a storage from here to its end, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        number = len(self.log.kinds)
        self.log.kinds.append(kind)
        self.log.dims.append(tensor.dim())
        self.log.sizes.append(storage.nbytes())
        self.log.events.append((self._phase(), number, 1))
        self._storages[key] = number, weakref.ref(storage, partial(self._freed, key))

    def close(self) -> None:
        """Follow storages no longer: what is freed from here on is not of the step."""
        self._storages.clear()

    def retag(self, tensor: Tensor, kind: MemoryKind) -> None:
        """Say what a storage turned out to be."""
        found = self._storages.get(tensor.untyped_storage()._cdata)
        if found is not None:
            self.log.kinds[found[0]] = kind

    def _freed(self, key: int, _: object) -> None:
        number, _ = self._storages.pop(key)
        self.log.events.append((self._phase(), number, -1))

    def _phase(self) -> str:
        if self.stage == "update":
            return "update"
        return f"{self.stage}, {'layer' if self.place.in_layer else self.place.part}"

    def _kind_here(self) -> MemoryKind:
        if self.place.part == "attention":
            return "attention"
        return "logits" if self.place.part == "head" else "activations"

    def _place_of_node(self) -> Place:
        node: Any = torch._C._current_autograd_node()
        number = 2**63 if node is None else node._sequence_nr()
        if number >= 2**62:  # the root, and the accumulation of a gradient just made
            return self.place
        if len(self._sequence) != len(self.boundaries):
            self._sequence = [start for start, _ in self.boundaries]
        return self.boundaries[max(0, bisect_right(self._sequence, number) - 1)][1]

    def _shares(self, facts: OperatorFacts, args: Any) -> Iterator[tuple[OperatorFacts, Place]]:
        """Split an operator over the parameters of all layers, so that it grows with them."""
        sizes: Counter[bool] = Counter()
        for tensor in tensors_of(args):
            sizes[tensor.untyped_storage()._cdata in self.layer_storages] += tensor.nbytes
        total = sum(sizes.values()) or 1
        for in_layer, size in sizes.items() or ((False, 1),):
            read, written = (round(part * size / total) for part in (facts.read_bytes, facts.written_bytes))
            yield facts._replace(read_bytes=read, written_bytes=written), Place("optimiser", in_layer)


@contextmanager
def watching(recorder: Recorder, tensors: SizesOnly | FakeTensorMode, target: str) -> Iterator[None]:
    """Let the recorder see every operator that runs in a mode."""
    if isinstance(tensors, SizesOnly):
        tensors.observer = recorder.saw
        try:
            yield
        finally:
            tensors.observer = None
    else:
        with _Above(recorder, target):
            yield


class _Above(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Shows the recorder what runs in the mode below it."""

    def __init__(self, recorder: Recorder, target: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder, self._target = recorder, target

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in NOT_OPERATORS:
            return func(*args, **kwargs)
        if is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        self._recorder.saw(operator_facts(func, args, kwargs, out, target=self._target), args, out)
        return out
