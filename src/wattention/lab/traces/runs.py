"""Run a model once on tensors that have sizes but no contents, and write down every operator and every byte it keeps.

A backward operator belongs where its forward one was: autograd numbers its nodes in the order of the forward pass.
Bytes are those of distinct storages, from their creation to their end; scratch inside kernels is not seen.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from wattention.core.operators import Part
from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.lab.traces.described import tensors_in
from wattention.lab.traces.fake_model import CudaChoices, FakeGPT2, FakeTrainer, no_tokens
from wattention.lab.traces.operator_recorder import Log, Place, Recorder, watching
from wattention.lab.traces.prepared import prepared
from wattention.lab.traces.sized_tensor import SizesOnly
from wattention.mechanisms.base import Cache, Mechanism, MechanismConfig
from wattention.mechanisms.kernels.rounds import rounds_counted_by
from wattention.mechanisms.target import NEWEST, traced_for
from wattention.model.gpt2 import GPT2

Workload = Literal["train", "prefill", "decode"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What runs: a training step, or prefill and decoding.

    Args:
        training: which of the two.
        model: the whole model; one of its layers runs.
        mechanism, config: its attention.
        batch, tokens: B and T; T is at most ``model.context``.
        precision: ``bfloat16`` runs under autocast.
        target: kind of device to choose kernels for: ``cpu``, ``cuda``, ``rocm``, or another of torch's names.
        capability: its compute capability, for ``cuda``.
    """

    training: bool
    model: ModelSpec
    mechanism: Mechanism
    config: MechanismConfig
    batch: int
    tokens: int
    precision: Precision
    target: str = "cpu"
    capability: float = NEWEST

    @property
    def program(self) -> tuple[object, ...]:
        """Everything but the model and the sizes."""
        return self.training, self.mechanism, self.config, self.precision, self.target, self.capability


def logs_of(run: Run, tensors: SizesOnly | FakeTensorMode) -> dict[Workload, Log]:
    """Run on tensors of one kind and return the logs. Errors: whatever the program raises on such tensors."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(traced_for(run.target, run.capability))
        stack.enter_context(torch.random.fork_rng([]))
        stack.enter_context(_no_collection())
        stack.enter_context(tensors)
        if run.target != "cpu":
            stack.enter_context(CudaChoices())
        kind = (run.model, *run.program) if isinstance(tensors, SizesOnly) else None
        logs = _trained if run.training else _generated
        return logs(run, partial(prepared, kind), partial(_recording, tensors=tensors, target=run.target))


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


def _trained(run: Run, lent: Any, recording: Any) -> dict[Workload, Log]:
    def trainer_with_moments() -> FakeTrainer:
        net = FakeGPT2(run.model.replace(layers=1), run.mechanism, run.config)
        made = FakeTrainer(net, TrainingSpec(precision=run.precision, steps=10, warmup_steps=0))
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
        trainer.step_of((run.batch, run.tokens))
    return {"train": recorder.log}


def _generated(run: Run, lent: Any, recording: Any) -> dict[Workload, Log]:
    def make() -> GPT2:
        longer = run.model.replace(layers=1, context=run.model.context + 2)
        return FakeGPT2(longer, run.mechanism, run.config).eval()

    half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=run.precision == "bfloat16")
    # no_grad, not inference mode, where composite operators arrive whole and lose the autocast
    with lent(make, lambda net: net) as net, torch.no_grad(), half:
        caches = net.new_caches(run.batch)
        with recording(net) as prefill:
            net.feed(no_tokens((run.batch, run.tokens)), caches)
        held = prefill.log.cache_bytes = sum(cache.nbytes for cache in caches)
        decode = _next_token(net, run.batch, caches, recording)
        if decode.left_bytes > held / 2:  # perhaps the cache has grown, and was copied
            decode = _next_token(net, run.batch, caches, recording)
        decode.log.cache_bytes = held
    return {"prefill": prefill.log, "decode": decode.log}


def _next_token(net: GPT2, batch: int, caches: Sequence[Cache], recording: Any) -> Recorder:
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
