"""Tensors without contents answer as tensors with contents do, and as torch's own fake tensors do."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from wattention.core.operators import StepTrace
from wattention.core.specs import ModelSpec
from wattention.lab.traces import runs, tracing
from wattention.lab.traces.operator_facts import operator_facts
from wattention.lab.traces.runs import Run, logs_of
from wattention.lab.traces.sized_tensor import SizedTensor, SizesOnly
from wattention.lab.traces.tracing import trace
from wattention.lab.traces.whole_model import step_of
from wattention.mechanisms import flash
from wattention.mechanisms.base import MECHANISMS

MODEL = ModelSpec(layers=3, heads=4, width=64, context=700, vocabulary=128)
EIGHT = tuple(MECHANISMS.names())


def traced(name: str, tensors: Any, training: bool, tokens: int, precision: Any, target: str) -> dict[Any, StepTrace]:
    mechanism = MECHANISMS.load(name)
    run = Run(
        training=training, model=MODEL, mechanism=mechanism, config=mechanism.config(), batch=3, tokens=tokens,
        precision=precision, target=target,
    )  # fmt: skip
    return {workload: step_of(log, MODEL.layers) for workload, log in logs_of(run, tensors).items()}


@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("target", "tokens"), [("cpu", 192), ("cpu", 700), ("cuda", 333)])
def test_a_trace_is_the_one_of_torch_s_fake_tensors_running_every_round(
    name: str, training: bool, precision: str, target: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, precision, target) == ("flash", "float32", "cuda"):
        pytest.skip("the flash kernel of CUDA has no float32")
    examine = partial(operator_facts, target=target)
    quick = traced(name, SizesOnly(examine), training, tokens, precision, target)
    monkeypatch.setattr(runs, "rounds_counted_by", lambda _: nullcontext())
    whole = traced(name, FakeTensorMode(), training, tokens, precision, target)
    assert quick == whole


@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize(("target", "precision"), [("cpu", "float32"), ("cuda", "bfloat16")])
@pytest.mark.parametrize(("tokens", "batch"), [(768, 8), (3000, 3), (1024, 1)])
def test_no_mechanism_needs_torch_s_fake_tensors(
    name: str, target: str, precision: Any, tokens: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> FakeTensorMode:
        raise AssertionError("tensors with sizes alone were not enough")

    monkeypatch.setattr(tracing, "FakeTensorMode", refused)
    mechanism = MECHANISMS.load(name)
    for workload in ("train", "decode"):
        found = trace(
            workload, ModelSpec.preset("gpt2", context=4096), mechanism, mechanism.config(), tokens=tokens, batch=batch,
            precision=precision, target=target,
        )  # fmt: skip
        assert not found.marks


SHAPES = st.lists(st.sampled_from([1, 2, 5, 9, 16, 33]), min_size=1, max_size=4).map(tuple)
ORDERS = st.randoms(use_true_random=False)
FUNCTIONS = {
    "add": lambda x, y: x + y,
    "multiply by a number": lambda x, y: x * 9,
    "compare": lambda x, y: x > y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "divide integers": lambda x, y: (x > 0).long() / 3,
    "softmax": lambda x, y: torch.softmax(x, dim=-1),
    "sum": lambda x, y: x.sum(dim=0, keepdim=True),
    "norm": lambda x, y: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "product": lambda x, y: x @ x.mT if x.dim() > 1 else x @ x,
    "gelu": lambda x, y: torch.nn.functional.gelu(x),
    "in place": lambda x, y: x.add_(1).exp_(),
    "a view of a view": lambda x, y: x.unsqueeze(0).transpose(0, -1)[..., :1],
    "half": lambda x, y: x.to(torch.bfloat16) + 1.0,
    "copy": lambda x, y: x.clone(),
    "copy in place": lambda x, y: x.copy_(y),
    "like another": lambda x, y: torch.full_like(x, 2.0),
    "zero": lambda x, y: x.zero_(),
    "sort": lambda x, y: x.sort(dim=0).indices,
    "largest": lambda x, y: x.argmax(dim=-1, keepdim=True),
    "gather": lambda x, y: x.gather(0, torch.zeros_like(x, dtype=torch.long)),
    "scatter": lambda x, y: x.scatter_add_(0, torch.zeros_like(y, dtype=torch.long), torch.ones_like(y)),
    "rows": lambda x, y: x.index_select(0, torch.zeros(7, dtype=torch.long)),
    "joined": lambda x, y: torch.cat([x, x], dim=-1),
}


@settings(max_examples=300, deadline=None)
@given(SHAPES, ORDERS, st.sampled_from(sorted(FUNCTIONS)), st.booleans())
def test_results_are_described_as_real_ones(shape: tuple[int, ...], order: Any, name: str, expanded: bool) -> None:
    permutation = list(range(len(shape)))
    order.shuffle(permutation)

    def made() -> tuple[Tensor, Tensor]:
        x = torch.zeros([shape[d] for d in permutation]).permute([permutation.index(d) for d in range(len(shape))])
        y = torch.zeros(shape[-1:]).expand(shape) if expanded else torch.zeros(shape)
        return x, y

    real = FUNCTIONS[name](*made())
    with SizesOnly():
        sized = FUNCTIONS[name](*made())
    assert isinstance(sized, SizedTensor)
    assert (sized.shape, sized.dtype) == (real.shape, real.dtype)
    steps = [(a, b) for size, a, b in zip(real.shape, sized.stride(), real.stride(), strict=True) if size > 1]
    assert all(a == b for a, b in steps)  # strides of one element mean nothing, and torch's kernels differ in them
    assert sized.storage_offset() == real.storage_offset()
    assert sized.untyped_storage().nbytes() == real.untyped_storage().nbytes()


def test_views_share_a_storage_and_results_do_not() -> None:
    with SizesOnly():
        x = torch.empty(40, 30)
        view, copy = x[3:].t(), x + 1
    assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert copy.untyped_storage()._cdata != x.untyped_storage()._cdata
    assert view.storage_offset() == 90
    assert x.device == torch.device("cpu")


def test_gradients_flow() -> None:
    with SizesOnly():
        x = torch.empty(40, 30, requires_grad=True)
        (x.t() @ x).logsumexp(dim=0).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_an_operator_is_examined_with_its_real_sizes_at_every_length() -> None:
    seen: list[Any] = []
    tensors = SizesOnly(lambda func, args, kwargs, out: tuple(out.shape))
    tensors.observer = lambda examined, args, out: seen.append((examined, tuple(out.shape)))
    with tensors:
        for length in (100, 200, 200):
            torch.empty(length, 24).exp()
    assert seen == [((n, 24), (n, 24)) for length in (100, 200, 200) for n in (length, length)]


def test_constants_keep_their_contents() -> None:
    with SizesOnly():
        constant = torch.tensor([3.0, 4.0])
        assert float(constant.sum()) == 7
        assert isinstance(constant + torch.empty(2), SizedTensor)
        with pytest.raises(NotImplementedError, match="constant is changed"):
            constant.add_(torch.empty(2))


@pytest.mark.parametrize(
    "asks", [lambda x: float(x.sum()), lambda x: x.nonzero(), lambda x: x.resize_(9), lambda x: x.unsqueeze_(0)]
)
def test_what_sizes_do_not_tell_is_an_error(asks: Any) -> None:
    with SizesOnly(), pytest.raises((RuntimeError, NotImplementedError)):
        asks(torch.empty(5, 6))


def test_outside_of_the_mode_a_tensor_without_contents_is_an_error() -> None:
    with SizesOnly():
        x = torch.empty(3)
    with pytest.raises(RuntimeError, match="without contents"):
        x + 1


def test_a_program_that_asks_more_runs_on_torch_s_fake_tensors() -> None:
    class Turning(flash.FlashAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            (q + 0).transpose_(0, 1)  # changes a shape in place, which sized tensors refuse
            return super().attend(q, k, v)

    turning = replace(
        MECHANISMS.load("flash"), name="turning", build=lambda shape, config, dropout: Turning(shape, dropout)
    )
    options: dict[str, Any] = {"tokens": 192, "batch": 2, "precision": "float32"}
    found = trace("train", MODEL, turning, turning.config(), **options)
    plain = trace("train", MODEL, MECHANISMS.load("flash"), MECHANISMS.load("flash").config(), **options)
    assert not found.marks
    assert found.flop == plain.flop
    assert found.launches > plain.launches


def test_an_operator_of_the_user_s_own_is_seen() -> None:
    @torch.library.custom_op("wattention_test::halved", mutates_args=())
    def halved(x: Tensor) -> Tensor:
        return x[: len(x) // 2].clone()

    @halved.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(len(x) // 2, *x.shape[1:])

    seen: list[Any] = []
    tensors = SizesOnly(partial(operator_facts, target="cpu"))
    with tensors:
        x = torch.empty(40, 30)
        tensors.observer = lambda facts, args, out: seen.append(facts)
        y = halved(x)
    assert y.shape == (20, 30)
    assert [(f.name, f.read_bytes, f.written_bytes) for f in seen] == [("wattention_test::halved", 4800, 2400)]
