"""Run a model on tensors that have sizes but no contents, and write down every operator and every byte it keeps.

The program is the one that trains: :class:`~wattention.lab.training.Trainer` and the mechanism's own module, so that
nothing about a mechanism is told twice. One layer stands for all: its operators count for every layer, and the memory
of a phase grows by what one more layer keeps. Loops whose rounds are alike run one or two of them
(``mechanisms/kernels/rounds.py``).

::

    forward    embedding | layer | head        one more layer keeps s bytes for the backward pass
    backward   head | layer | embedding        ... or leaves g bytes of gradients
    update     clip, AdamW

Tensors are those of :mod:`.sized_tensor`; a program that asks more of them than they know runs on torch's own fake
tensors, and one that asks for their contents is known by its cost record alone (:mod:`.stand_in`).

A backward operator belongs where its forward one was: autograd numbers its nodes in the order of the forward pass.
Bytes are those of distinct storages, from their creation to their end; scratch inside kernels is not seen.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from wattention.core.errors import UserError
from wattention.core.operators import Part, StepTrace
from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.lab.traces.described import tensors_in
from wattention.lab.traces.fake_model import CudaChoices, FakeGPT2, FakeTrainer, no_tokens
from wattention.lab.traces.growth import growth_of
from wattention.lab.traces.operator_facts import operator_facts
from wattention.lab.traces.operator_recorder import Log, Place, Recorder, watching
from wattention.lab.traces.prepared import prepared
from wattention.lab.traces.sized_tensor import SizesOnly
from wattention.lab.traces.stand_in import record_operators, stand_in
from wattention.lab.traces.whole_model import step_of
from wattention.mechanisms.base import Cache, Mechanism, MechanismConfig
from wattention.mechanisms.kernels.rounds import rounds_counted_by
from wattention.mechanisms.target import NEWEST, traced_for
from wattention.model.gpt2 import GPT2

Workload = Literal["train", "prefill", "decode"]
Precision = Literal["float32", "bfloat16"]


def trace(
    workload: Workload,
    model: ModelSpec,
    mechanism: Mechanism,
    config: MechanismConfig,
    *,
    tokens: int,
    batch: int,
    precision: Precision,
    target: str = "cpu",
    capability: float = NEWEST,
) -> StepTrace:
    """Trace one step of a workload.

    Args:
        workload: ``train`` is one optimiser step; ``prefill`` feeds ``tokens`` tokens; ``decode`` feeds the next one,
            or the one after that where the cache grows with the next. Caches are told as after ``tokens`` tokens.
        model: the whole model.
        mechanism, config: its attention.
        tokens, batch: T and B; T is at most ``model.context``.
        precision: ``bfloat16`` runs under autocast.
        target: kind of device to choose kernels for: ``cpu``, ``cuda``, ``rocm``, or another of torch's names.
        capability: its compute capability, for ``cuda``.

    Raises:
        UserError: settings the mechanism refuses, or a device it cannot run on.
    """
    return traces(
        workload == "train", model, mechanism, config, tokens=tokens, batch=batch, precision=precision, target=target,
        capability=capability,
    )[workload]  # fmt: skip


@lru_cache(maxsize=512)
def traces(
    training: bool, model: ModelSpec, mechanism: Mechanism, config: MechanismConfig, *, tokens: int, batch: int,
    precision: Precision, target: str, capability: float = NEWEST,
) -> dict[Workload, StepTrace]:  # fmt: skip
    """Trace a training step, or prefill and decoding together; arguments and errors as :func:`trace`."""

    def run(tensors: Callable[[], SizesOnly | FakeTensorMode], mechanism: Mechanism) -> dict[Workload, StepTrace]:
        def logs(sequences: int) -> dict[Workload, Log]:
            return trace_on(
                training, model, tensors(), mechanism, config, size=(sequences, tokens), precision=precision,
                target=target, capability=capability,
            )  # fmt: skip

        found = logs(batch)
        if not training:
            return {workload: step_of(log, model.layers) for workload, log in found.items()}
        kind = tensors, mechanism, config, precision, target, capability
        growth = growth_of(
            found["train"], batch=batch, layers=model.layers, kind=kind, trace=lambda batch: logs(batch)["train"]
        )
        return {"train": replace(step_of(found["train"], model.layers), growth=growth)}

    failed: Exception
    for tensors in (_sized_for(target), FakeTensorMode):  # made only when asked for
        try:
            return run(tensors, mechanism)
        except UserError:
            raise
        except Exception as error:  # whatever a program does that depends on numbers it does not have here
            failed = error
    width, dtype = (2, "bfloat16") if precision == "bfloat16" else (4, "float32")
    record = stand_in(mechanism, model, tokens=tokens, batch=batch, element_bytes=width)
    why = str(failed).strip().partition("\n")[0][:120]
    mark = f"{mechanism.name} cannot be traced ({type(failed).__name__}: {why}): its cost record stands in for it"

    def with_record(workload: Workload, found: StepTrace) -> StepTrace:
        layers = record_operators(
            workload, mechanism, config, model, tokens=tokens, batch=batch, dtype=dtype, element_bytes=width
        )
        return replace(found, operators=(*found.operators, *layers), marks=(mark,))

    without = run(_sized_for(target), record)
    return {workload: with_record(workload, found) for workload, found in without.items()}


@cache
def _sized_for(target: str) -> Callable[[], SizesOnly]:
    return partial(SizesOnly, partial(operator_facts, target=target))


def trace_on(
    training: bool, model: ModelSpec, tensors: SizesOnly | FakeTensorMode, mechanism: Mechanism,
    config: MechanismConfig, *, size: tuple[int, int], precision: Precision, target: str, capability: float = NEWEST,
) -> dict[Workload, Log]:  # fmt: skip
    """Trace on tensors of one kind; ``size`` is B, T. Errors: whatever the program raises on such tensors."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(traced_for(target, capability))
        stack.enter_context(torch.random.fork_rng([]))
        stack.enter_context(_no_collection())
        stack.enter_context(tensors)
        if target != "cpu":
            stack.enter_context(CudaChoices())
        recording = partial(_recording, tensors=tensors, target=target)
        one_layer = model.replace(layers=1, context=model.context + (0 if training else 2))
        kind = (training, one_layer, mechanism, config, precision, target, capability)
        trace_model = _trace_training if training else _trace_generation
        return trace_model(
            partial(prepared, kind if isinstance(tensors, SizesOnly) else None),
            lambda: FakeGPT2(one_layer, mechanism, config), size, precision, recording,
        )  # fmt: skip


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let nothing but the last reference free a storage: when is part of what is recorded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _trace_training(
    lent: Any, make: Callable[[], FakeGPT2], size: tuple[int, int], precision: Precision, recording: Any
) -> dict[Workload, Log]:
    def trainer_with_moments() -> FakeTrainer:
        made = FakeTrainer(make(), TrainingSpec(precision=precision, steps=10, warmup_steps=0))
        for parameter in made.model.parameters():
            parameter.grad = torch.empty_like(parameter)
        made.optimizer.step()
        made.optimizer.zero_grad(set_to_none=True)
        return made

    with (
        lent(trainer_with_moments, lambda trainer: trainer.model) as trainer,
        recording(trainer.model, trainer.optimizer) as recorder,
        _stages(trainer.model, recorder),
    ):
        trainer.step_of(size)
    return {"train": recorder.log}


def _trace_generation(
    lent: Any, make: Callable[[], FakeGPT2], size: tuple[int, int], precision: Precision, recording: Any
) -> dict[Workload, Log]:
    batch, tokens = size
    half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16")
    # no_grad, not inference mode, where composite operators arrive whole and lose the autocast
    with lent(lambda: make().eval(), lambda net: net) as net, torch.no_grad(), half:
        caches = net.new_caches(batch)
        with recording(net) as prefill:
            net.feed(no_tokens((batch, tokens)), caches)
        held = prefill.log.cache_bytes = sum(cache.nbytes for cache in caches)
        decode = _trace_token(net, batch, caches, recording)
        if decode.left_bytes > held / 2:  # perhaps the cache has grown, and was copied
            decode = _trace_token(net, batch, caches, recording)
        decode.log.cache_bytes = held
    return {"prefill": prefill.log, "decode": decode.log}


def _trace_token(net: GPT2, batch: int, caches: Sequence[Cache], recording: Any) -> Recorder:
    with recording(net) as recorder:
        net.feed(no_tokens((batch, 1)), caches)
    found: Recorder = recorder
    return found


@contextlib.contextmanager
def _recording(
    net: GPT2, optimizer: torch.optim.Optimizer | None = None, *, tensors: SizesOnly | FakeTensorMode, target: str
) -> Iterator[Recorder]:
    """Record what runs inside."""
    recorder = Recorder()
    _own(recorder, net, optimizer)
    with _followed(net, recorder), rounds_counted_by(recorder.repeating), watching(recorder, tensors, target):
        yield recorder
    recorder.close()


def _own(recorder: Recorder, net: GPT2, optimizer: torch.optim.Optimizer | None) -> None:
    """Track what is alive before the step, and know what belongs to the layer."""
    in_layer = {id(p) for p in net.blocks.parameters()}
    recorder.log.weight_bytes = sum(p.nbytes for p in net.blocks.parameters())
    recorder.log.buffer_bytes = sum(b.nbytes for b in net.blocks.buffers())
    for tensor in (*net.parameters(), *net.buffers()):
        recorder.track(tensor, "parameters")
    states: Mapping[Tensor, Mapping[str, Any]] = optimizer.state if optimizer is not None else {}
    for parameter in net.parameters():
        held = [parameter, *tensors_in(list(states.get(parameter, {}).values()))]
        for tensor in held[1:]:
            recorder.track(tensor, "optimiser")
        if id(parameter) in in_layer:
            recorder.layer_storages.update(tensor.untyped_storage()._cdata for tensor in held)


@contextlib.contextmanager
def _followed(net: GPT2, recorder: Recorder) -> Iterator[None]:
    """Keep the recorder's place in step with the forward pass; hooks hold no tensors."""
    handles = []

    def follow(module: nn.Module, inside: Place, after: Place) -> None:
        handles.append(module.register_forward_pre_hook(lambda *_: recorder.enter(inside)))
        handles.append(module.register_forward_hook(lambda *_: recorder.enter(after)))

    (block,) = net.blocks
    rest = Place("residual", True)

    def begin() -> None:
        recorder.mark()
        recorder.enter(rest)

    parts: dict[str, Part] = {"norm1": "norm", "norm2": "norm", "attention": "attention", "mlp": "mlp"}
    for name, part in parts.items():
        follow(block.get_submodule(name), Place(part, True), rest)
    handles.append(block.register_forward_pre_hook(lambda *_: begin()))
    handles.append(block.register_forward_hook(lambda *_: recorder.mark()))
    follow(net.norm, Place("norm"), Place("head"))
    recorder.enter(Place("embedding"))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _stages(net: GPT2, recorder: Recorder) -> Iterator[None]:
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
