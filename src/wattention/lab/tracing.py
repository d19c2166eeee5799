"""Run a model on tensors that have sizes but no contents, and write down every operator and every byte it keeps.

The program is the one that trains: :class:`~wattention.lab.training.Trainer` and the mechanism's own module, on fake
tensors (torch's FakeTensorMode), so that nothing about a mechanism is told twice. Two layers stand for all: the
second one's operators count for every further layer, and the memory of a phase grows by what one more layer keeps.

::

    forward    embedding | layer 1 | layer 2 | head        one more layer keeps s bytes for the backward pass
    backward   head | layer 2 | layer 1 | embedding        ... or leaves g bytes of gradients
    update     clip, AdamW

A backward operator belongs where its forward one was: autograd numbers its nodes in the order of the forward pass.
Bytes are those of distinct storages, from their creation to their end; scratch inside kernels is not seen.
"""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from wattention.core.errors import UserError
from wattention.core.operators import MEMORY_KINDS, MemoryKind, MemoryPoint, Operator, Part, Stage, StepTrace
from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.lab.operator_facts import OperatorFacts, operator_facts, tensors_of
from wattention.lab.stand_in import record_operators, stand_in
from wattention.lab.training import Trainer
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.mechanisms.target import traced_for
from wattention.model.gpt2 import GPT2

Workload = Literal["train", "prefill", "decode"]


@cache
def _is_composite(func: Any) -> bool:
    """Whether an operator is made of others, which a pass without autograd hands over whole."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@dataclass(frozen=True)
class _Place:
    """Where in the model an operator belongs; ``in_layer`` where it is one of every layer."""

    part: Part
    in_layer: bool = False


@dataclass(kw_only=True)
class _Log:
    """What a run leaves: operators with their place, and storages as they come and go."""

    operators: Counter[tuple[OperatorFacts, _Place, Stage]] = field(default_factory=Counter)
    kinds: list[MemoryKind] = field(default_factory=list)
    """Of each storage, in the order they came."""
    events: list[tuple[str, int, int]] = field(default_factory=list)
    """(phase, storage, bytes), negative when freed; ("mark", 0, 0) where the layer's forward pass begins and ends."""


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes the log; ``stage`` and ``place`` are kept by whoever runs the model."""

    def __init__(self, target: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.target = target
        self.log = _Log()
        self.stage: Stage = "forward"
        self.place = _Place("embedding")
        self.boundaries: list[tuple[int, _Place]] = []
        self.layer_storages: set[int] = set()
        """Parameters of the layer, their gradients and moments."""
        self._storages: dict[int, tuple[int, Any]] = {}
        self._sequence: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in ("prim", "profiler"):  # a question about the tensor, or a mark: not an operator
            return func(*args, **kwargs)
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if self.stage == "backward":
            self.place = self._place_of_node()
        facts = operator_facts(func, args, kwargs, out, target=self.target)
        for share, place in self._shares(facts, args):
            self.log.operators[share, place, self.stage] += 1
        if facts.kind != "view" or "empty" in facts.name:
            for tensor in tensors_of(out):
                self.track(tensor, self._kind_here())
        return out

    def enter(self, place: _Place) -> None:
        """Say where the following forward operators belong."""
        self.place = place
        self.boundaries.append((torch._C._autograd._get_sequence_nr(), place))

    def mark(self) -> None:
        """Say that the layer's forward pass begins or ends here."""
        self.log.events.append(("mark", 0, 0))

    def track(self, tensor: Tensor, kind: MemoryKind) -> None:
        """Follow a storage from here to its end, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        number, size = len(self.log.kinds), storage.nbytes()
        self.log.kinds.append(kind)
        self.log.events.append((self._phase(), number, size))
        self._storages[key] = number, weakref.ref(storage, partial(self._freed, key, size))

    def retag(self, tensor: Tensor, kind: MemoryKind) -> None:
        """Say what a storage turned out to be."""
        found = self._storages.get(tensor.untyped_storage()._cdata)
        if found is not None:
            self.log.kinds[found[0]] = kind

    def _freed(self, key: int, size: int, _: object) -> None:
        number, _ = self._storages.pop(key)
        self.log.events.append((self._phase(), number, -size))

    def _phase(self) -> str:
        if self.stage == "update":
            return "update"
        return f"{self.stage}, {'layer' if self.place.in_layer else self.place.part}"

    def _kind_here(self) -> MemoryKind:
        if self.place.part == "attention":
            return "attention"
        return "logits" if self.place.part == "head" else "activations"

    def _place_of_node(self) -> _Place:
        node: Any = torch._C._current_autograd_node()
        number = 2**63 if node is None else node._sequence_nr()
        if number >= 2**62:  # the root, and the accumulation of a gradient just made
            return self.place
        if len(self._sequence) != len(self.boundaries):
            self._sequence = [start for start, _ in self.boundaries]
        return self.boundaries[max(0, bisect_right(self._sequence, number) - 1)][1]

    def _shares(self, facts: OperatorFacts, args: Any) -> Iterator[tuple[OperatorFacts, _Place]]:
        """Say whose operator it is; one over the parameters of all layers is split, so that it grows with them."""
        if self.stage != "update":
            yield facts, self.place
            return
        sizes: Counter[bool] = Counter()
        for tensor in tensors_of(args):
            sizes[tensor.untyped_storage()._cdata in self.layer_storages] += tensor.nbytes
        total = sum(sizes.values()) or 1
        for in_layer, size in sizes.items() or ((False, 1),):
            read, written = (round(part * size / total) for part in (facts.read_bytes, facts.written_bytes))
            yield facts._replace(read_bytes=read, written_bytes=written), _Place("optimiser", in_layer)


class _FakeGPT2(GPT2):
    """The model, which is already where it belongs."""

    def to(self, *_: Any, **__: Any) -> Self:
        """Return itself."""
        return self


class _FakeTrainer(Trainer):
    """The trainer itself, with batches that have no contents."""

    def __init__(self, model: GPT2, spec: TrainingSpec, shape: tuple[int, int]) -> None:
        self._shape = shape
        super().__init__(model, _NoBatches(), spec)  # type: ignore[arg-type]

    def _to_device(self, batch: Any) -> tuple[Tensor, Tensor]:
        return _no_tokens(self._shape), _no_tokens(self._shape)

    def _seed_dropout(self, step: int) -> None:
        """Leave the generators of this process alone."""


class _NoBatches:
    def train(self, index: int) -> None:
        """Return nothing: sizes are known."""


def _no_tokens(shape: tuple[int, int]) -> Tensor:
    return torch.empty(shape, dtype=torch.long)


class _CudaChoices(TorchFunctionMode):
    """What torch does differently on CUDA: which fused kernel it takes, and softmax in float32 under autocast.

    Flash for 16-bit floats without a mask, else the memory-efficient kernel; shared heads are written out before.
    Source: torch 2.6 to 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and autocast_mode.h; recalled, not
    checked.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is nn.functional.scaled_dot_product_attention:
            return _cuda_attention(*args, **kwargs)
        if func in (torch.softmax, torch.log_softmax) and torch.is_autocast_enabled("cpu"):
            args = (args[0].float(), *args[1:])
        return func(*args, **kwargs)


def _cuda_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    if enable_gqa and q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    aten = torch.ops.aten
    if attn_mask is None and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] <= 256:
        flash: Tensor = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        return flash
    bias = None
    if attn_mask is not None:
        B, H, T, _ = q.shape
        bias = attn_mask.to(q.dtype).expand(B, H, T, k.shape[2])
    return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
        q, k, v, bias, torch.is_grad_enabled(), dropout_p, is_causal, scale=scale
    )[0]


@lru_cache(maxsize=512)
def trace(
    workload: Workload,
    model: ModelSpec,
    mechanism: Mechanism,
    config: MechanismConfig,
    *,
    tokens: int,
    batch: int,
    precision: Literal["float32", "bfloat16"],
    target: str = "cpu",
) -> StepTrace:
    """Trace one step of a workload.

    Args:
        workload: ``train`` is one optimiser step; ``prefill`` feeds ``tokens`` tokens; ``decode`` feeds the last one of
            them after the others.
        model: the whole model.
        mechanism, config: its attention.
        tokens, batch: T and B; T is at most ``model.context``.
        precision: ``bfloat16`` runs under autocast.
        target: kind of device to choose kernels for, ``cpu`` or ``cuda``.

    Raises:
        UserError: settings the mechanism refuses, or a device it cannot run on.
    """
    try:
        return _traced(
            workload, model, mechanism, config, tokens=tokens, batch=batch, precision=precision, target=target
        )
    except UserError:
        raise
    except Exception as error:  # whatever a program does that depends on numbers it does not have here
        width, dtype = (2, "bfloat16") if precision == "bfloat16" else (4, "float32")
        found = _traced(
            workload, model, stand_in(mechanism, model, tokens=tokens, batch=batch, element_bytes=width), config,
            tokens=tokens, batch=batch, precision=precision, target=target,
        )  # fmt: skip
        layers = record_operators(
            workload, mechanism, config, model, tokens=tokens, batch=batch, dtype=dtype, element_bytes=width
        )
        why = str(error).strip().partition("\n")[0][:120]
        mark = f"{mechanism.name} cannot be traced ({type(error).__name__}: {why}): its cost record stands in for it"
        return replace(found, operators=(*found.operators, *layers), marks=(mark,))


def _traced(
    workload: Workload, model: ModelSpec, mechanism: Mechanism, config: MechanismConfig, *, tokens: int, batch: int,
    precision: Literal["float32", "bfloat16"], target: str,
) -> StepTrace:  # fmt: skip
    traced = model.replace(layers=1)
    size = (batch, tokens)
    with contextlib.ExitStack() as stack:
        stack.enter_context(traced_for(target))
        stack.enter_context(torch.random.fork_rng([]))
        stack.enter_context(FakeTensorMode())
        if target != "cpu":
            stack.enter_context(_CudaChoices())
        net = _FakeGPT2(traced, mechanism, config)
        if workload == "train":
            recorder = _trace_training(net, size, precision, target)
            cache_bytes = 0
        else:
            recorder, cache_bytes = _trace_inference(net, workload, size, precision, target)
    return StepTrace(
        operators=_operators(recorder.log, model.layers),
        memory=_memory_points(recorder.log, net),
        further_layers=model.layers - 1,
        cache_bytes=cache_bytes * model.layers,
    )


def _trace_training(net: GPT2, size: tuple[int, int], precision: Any, target: str) -> _Recorder:
    spec = TrainingSpec(batch=size[0], tokens=size[1], precision=precision, steps=10, warmup_steps=0)
    trainer = _FakeTrainer(net, spec, size)
    for parameter in net.parameters():  # so that the moments exist
        parameter.grad = torch.empty_like(parameter)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)
    recorder = _Recorder(target)
    _own(recorder, net, trainer.optimizer)
    with _followed(net, recorder), _stages(net, trainer, recorder), recorder:
        trainer.step()
    return recorder


def _trace_inference(
    net: GPT2, workload: Workload, size: tuple[int, int], precision: Any, target: str
) -> tuple[_Recorder, int]:
    batch, tokens = size
    net.eval()
    recorder = _Recorder(target)
    _own(recorder, net, None)
    half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")
    with torch.no_grad(), half:  # not inference mode, where composite operators arrive whole and lose the autocast
        caches = net.new_caches(batch)
        if workload == "decode" and tokens > 1:
            net.feed(_no_tokens((batch, tokens - 1)), caches)
        fed = _no_tokens((batch, tokens if workload == "prefill" else 1))
        with _followed(net, recorder), recorder:
            net.feed(fed, caches)
    return recorder, sum(cache.nbytes for cache in caches)


def _own(recorder: _Recorder, net: GPT2, optimizer: torch.optim.Optimizer | None) -> None:
    """Track what is alive before the step, and know what belongs to the layer."""
    in_layer = {id(p) for p in net.blocks.parameters()}
    for tensor in (*net.parameters(), *net.buffers()):
        recorder.track(tensor, "parameters")
    states: Mapping[Tensor, Mapping[str, Any]] = optimizer.state if optimizer is not None else {}
    for parameter in net.parameters():
        held = [parameter, *tensors_of(list(states.get(parameter, {}).values()))]
        for tensor in held[1:]:
            recorder.track(tensor, "optimiser")
        if id(parameter) in in_layer:
            recorder.layer_storages.update(tensor.untyped_storage()._cdata for tensor in held)


@contextlib.contextmanager
def _followed(net: GPT2, recorder: _Recorder) -> Iterator[None]:
    """Keep the recorder's place in step with the forward pass; hooks hold no tensors."""
    handles = []

    def follow(module: nn.Module, inside: _Place, after: _Place) -> None:
        handles.append(module.register_forward_pre_hook(lambda *_: recorder.enter(inside)))
        handles.append(module.register_forward_hook(lambda *_: recorder.enter(after)))

    (block,) = net.blocks
    rest = _Place("residual", True)

    def begin() -> None:
        recorder.mark()
        recorder.enter(rest)

    parts: dict[str, Part] = {"norm1": "norm", "norm2": "norm", "attention": "attention", "mlp": "mlp"}
    for name, part in parts.items():
        follow(block.get_submodule(name), _Place(part, True), rest)
    handles.append(block.register_forward_pre_hook(lambda *_: begin()))
    handles.append(block.register_forward_hook(lambda *_: recorder.mark()))
    follow(net.norm, _Place("norm"), _Place("head"))
    recorder.enter(_Place("embedding"))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _stages(net: GPT2, trainer: Trainer, recorder: _Recorder) -> Iterator[None]:
    """Tell the recorder where the backward pass begins and where the update does."""
    backward = Tensor.backward
    clip = nn.utils.clip_grad_norm_

    def traced_backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        recorder.stage = "backward"
        backward(loss, *args, **kwargs)  # type: ignore[no-untyped-call]
        in_layer = {id(p) for p in net.blocks.parameters()}
        for parameter in net.parameters():
            if parameter.grad is not None:
                recorder.retag(parameter.grad, "gradients")
                if id(parameter) in in_layer:
                    recorder.layer_storages.add(parameter.grad.untyped_storage()._cdata)

    def traced_clip(*args: Any, **kwargs: Any) -> Tensor:
        recorder.stage = "update"
        return clip(*args, **kwargs)

    Tensor.backward = traced_backward  # type: ignore[method-assign,assignment]
    nn.utils.clip_grad_norm_ = traced_clip
    try:
        yield
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]
        nn.utils.clip_grad_norm_ = clip


def _operators(log: _Log, layers: int) -> tuple[Operator, ...]:
    """Join equal operators; those of the traced layer stand for all layers."""
    joined: Counter[tuple[OperatorFacts, Part, Stage]] = Counter()
    for (facts, place, stage), times in log.operators.items():
        joined[facts, place.part, stage] += times * (layers if place.in_layer else 1)
    return tuple(
        Operator(part=part, stage=stage, times=times, **facts._asdict())
        for (facts, part, stage), times in joined.items()
    )


def _memory_points(log: _Log, net: GPT2) -> tuple[MemoryPoint, ...]:
    """Replay the log: the highest point of each phase, and what one more layer adds to it."""
    level = dict.fromkeys(MEMORY_KINDS, 0)
    highest: dict[str, dict[MemoryKind, int]] = {}
    marks: list[dict[MemoryKind, int]] = []
    total = 0
    tops: dict[str, int] = {}
    for phase, number, size in log.events:
        if phase == "mark":
            marks.append(dict(level))
            continue
        level[log.kinds[number]] += size
        total += size
        if total > tops.get(phase, -1):
            tops[phase], highest[phase] = total, dict(level)
    block = net.blocks[0]
    weights = sum(p.numel() * p.element_size() for p in block.parameters())
    buffers = sum(b.numel() * b.element_size() for b in block.buffers())
    always = dict.fromkeys(MEMORY_KINDS, 0) | {"parameters": weights + buffers}
    if "optimiser" in log.kinds:
        always["optimiser"] = 2 * weights
    kept = {kind: always[kind] + marks[1][kind] - marks[0][kind] for kind in MEMORY_KINDS}
    left = always | {"gradients": weights}
    grows = {"forward, embedding": (always,), "backward, layer": (kept, left), "backward, embedding": (left,),
             "update": (left,)}  # fmt: skip
    return tuple(
        MemoryPoint(phase=phase, bytes_by_kind=at, layer_bytes=more)
        for phase, at in highest.items()
        for more in grows.get(phase, (kept,))
    )
