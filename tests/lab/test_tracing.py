"""A trace is of the program itself: its bytes are the measured ones, its FLOPs those of the cost records."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.core.specs import ModelSpec, TrainingSpec
from wattention.data.batches import Batch
from wattention.lab.traces.described import described
from wattention.lab.traces.operator_facts import sum_of_causal_pairs
from wattention.lab.traces.tracing import trace, traces
from wattention.lab.training import Trainer
from wattention.mechanisms import flash
from wattention.mechanisms.base import MECHANISMS
from wattention.mechanisms.target import target_of, traced_for
from wattention.meters.tensor_memory import live_tensor_bytes, measure_peak_tensor_bytes
from wattention.model.gpt2 import GPT2

MODEL = ModelSpec(layers=3, heads=4, width=64, context=192, vocabulary=128)
EIGHT = tuple(name for name in MECHANISMS.names())


class ZeroBatches:
    def __init__(self, batch: int, tokens: int) -> None:
        self.shape = batch, tokens

    def train(self, index: int) -> Batch:
        numbers = torch.zeros(self.shape, dtype=torch.long).numpy()
        return Batch(inputs=numbers, targets=numbers)


def traced(name: str, workload: Any = "train", **changes: Any) -> Any:
    mechanism = MECHANISMS.load(name)
    given: dict[str, Any] = {"tokens": 192, "batch": 2, "precision": "float32", "target": "cpu"}
    return trace(workload, MODEL, mechanism, mechanism.config(), **{**given, **changes})


@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_peak_is_the_measured_one(name: str, precision: Any) -> None:
    spec = TrainingSpec(batch=2, precision=precision)
    gc.collect()
    foreign = live_tensor_bytes("cpu")  # what other tests of this process left behind
    trainer = Trainer(GPT2(MODEL, MECHANISMS.load(name)), ZeroBatches(2, 192), spec)  # type: ignore[arg-type]
    measured = measure_peak_tensor_bytes(trainer.step)
    _, parts = traced(name, precision=precision).peak()
    assert sum(parts.values()) == pytest.approx(measured.to_json()["value"] - foreign, rel=0.05)


@pytest.mark.parametrize("name", EIGHT)
def test_products_are_those_of_the_cost_record_and_the_model(name: str) -> None:
    mechanism = MECHANISMS.load(name)
    shape = AttentionShape(batch=2, tokens=192, width=64, heads=4)
    cost = mechanism.cost(shape, mechanism.config(), 4)
    attention = sum(op.flop * op.times for op in traced(name).operators if op.part == "attention")
    rest = sum(op.flop * op.times for op in traced(name).operators if op.part != "attention")
    assert attention == pytest.approx(3 * (cost.hardware_forward_flop + cost.hardware_backward_flop), rel=0.02)
    assert rest == (MODEL.forward_flop_per_token + MODEL.backward_flop_per_token) * 2 * 192


@pytest.mark.parametrize("name", EIGHT)
def test_the_cache_is_the_record_s(name: str) -> None:
    mechanism = MECHANISMS.load(name)
    shape = AttentionShape(batch=2, tokens=192, width=64, heads=4)
    assert traced(name, "decode").cache_bytes == 3 * mechanism.cost(shape, mechanism.config(), 4).cache_bytes


@pytest.mark.parametrize("name", EIGHT)
def test_every_mechanism_can_be_traced_for_a_gpu_that_is_not_here(name: str) -> None:
    found = traced(name, target="cuda", precision="bfloat16")
    assert not found.marks
    assert not any("for_cpu" in op.name for op in found.operators)


def test_on_a_gpu_the_fused_kernel_is_flash_for_half_precision_and_the_other_one_else() -> None:
    half = {op.name for op in traced("sdpa", target="cuda", precision="bfloat16").operators}
    full = {op.name for op in traced("sdpa", target="cuda").operators}
    assert "_scaled_dot_product_flash_attention" in half
    assert "_scaled_dot_product_efficient_attention" in full
    with pytest.raises(UserError, match="float16 and bfloat16"):
        traced("flash", target="cuda")


@settings(max_examples=8, deadline=None)
@given(st.integers(4, 9))
def test_layers_repeat_exactly(layers: int) -> None:
    mechanism = MECHANISMS.load("gqa")
    few, many = (
        trace("train", MODEL.replace(layers=n), mechanism, mechanism.config(), tokens=64, batch=1, precision="float32")
        for n in (3, layers)
    )
    one = trace(
        "train", MODEL.replace(layers=4), mechanism, mechanism.config(), tokens=64, batch=1, precision="float32"
    )
    assert many.flop - few.flop == (layers - 3) * (one.flop - few.flop)
    assert many.launches - few.launches == (layers - 3) * (one.launches - few.launches)


def test_tracing_leaves_the_process_as_it_was() -> None:
    backward, clip, state = torch.Tensor.backward, torch.nn.utils.clip_grad_norm_, torch.get_rng_state()
    traces.cache_clear()
    traced("flash")
    assert torch.Tensor.backward is backward
    assert torch.nn.utils.clip_grad_norm_ is clip
    assert torch.equal(torch.get_rng_state(), state)


def test_a_mechanism_that_looks_at_its_numbers_is_known_by_its_record() -> None:
    class Peeking(flash.FlashAttention):
        def attend(self, q: Any, k: Any, v: Any) -> Any:
            return super().attend(q, k, v) * float(q.sum())

    peeking = replace(
        MECHANISMS.load("flash"), name="peeking", build=lambda shape, config, dropout: Peeking(shape, dropout)
    )
    options: dict[str, Any] = {"tokens": 192, "batch": 2, "precision": "float32"}
    found = {w: trace(w, MODEL, peeking, peeking.config(), **options) for w in ("train", "prefill", "decode")}
    cost = peeking.cost(AttentionShape(batch=2, tokens=192, width=64, heads=4), peeking.config(), 4)
    assert "peeking cannot be traced" in found["train"].marks[0]
    attention = sum(op.flop * op.times for op in found["train"].operators if op.part == "attention")
    assert attention == 3 * (cost.hardware_forward_flop + cost.hardware_backward_flop)
    assert found["decode"].cache_bytes == 3 * cost.cache_bytes
    twice = trace("train", MODEL, peeking, peeking.config(), **(options | {"batch": 4}))
    told = max(line.fixed_bytes + 4 * line.sequence_bytes for line in found["train"].growth)
    assert told == pytest.approx(sum(twice.peak()[1].values()))
    assert sum(found["train"].peak()[1].values()) == pytest.approx(sum(traced("flash").peak()[1].values()), rel=0.05)


def test_expanded_tensors_count_what_lies_in_memory() -> None:
    assert described(torch.zeros(1, 8).expand(1000, 8)).distinct_bytes == 32
    assert described(torch.zeros(0, 3)).distinct_bytes == 0
    assert sum_of_causal_pairs(3, 3) == 6
    assert sum_of_causal_pairs(1, 5) == 1


def test_the_target_is_the_device_unless_a_trace_says_otherwise() -> None:
    assert target_of(torch.device("cpu")) == "cpu"
    with traced_for("cuda"):
        assert target_of(torch.device("cpu")) == "cuda"
    assert target_of(torch.device("cpu")) == "cpu"
