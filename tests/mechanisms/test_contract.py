"""The contract of a mechanism file, on every file of the folder: a new file inherits these tests."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from wattention.core.attended import attended_from_json
from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.lab.conformance import run_gate
from wattention.lab.conformance.accounting import count_flop, count_saved_bytes
from wattention.lab.conformance.subject import Subject
from wattention.mechanisms.base import MECHANISMS, AttentionModule, Cache, Mechanism

NAMES = MECHANISMS.names()

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def mechanism(name: str) -> Mechanism:
    return MECHANISMS.load(name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("seed", [0, 1])
def test_conforms(mechanism: Mechanism, dtype: torch.dtype, seed: int) -> None:
    report = run_gate(mechanism, dtype=dtype, seed=seed)
    assert report.passed, [v for v in report.clauses if v.status == "failed"]
    applies = {v.name for v in report.clauses if v.status == "passed"}
    assert ("no-square-tensor" in applies) == mechanism.subquadratic
    assert ("causality" in applies) == mechanism.strictly_causal


def test_record_is_complete(mechanism: Mechanism, name: str) -> None:
    assert mechanism.name == name
    assert mechanism.title
    assert "arXiv" in mechanism.paper
    assert all(limit.what and limit.why for limit in mechanism.limits)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.name = "other"


def test_settings_are_frozen_and_know_their_keys(mechanism: Mechanism) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        mechanism.config(no_such_setting=1)
    for key in mechanism.config.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(mechanism.config(), key, None)


def test_module_follows_the_protocol(mechanism: Mechanism) -> None:
    module = mechanism.build(AttentionShape(batch=2, tokens=8, width=12, heads=3), mechanism.config(), 0.0)
    assert isinstance(module, AttentionModule)
    assert module.out.out_features == 12
    cache = module.new_cache(2)
    assert isinstance(cache, Cache)
    assert (cache.length, cache.nbytes) == (0, 0)


shapes = st.builds(
    lambda batch, tokens, heads, head_dim: AttentionShape(
        batch=batch, tokens=tokens, width=heads * head_dim, heads=heads
    ),
    batch=st.integers(1, 3),
    tokens=st.sampled_from([3, 31, 32, 33, 100, 191, 192, 193, 511, 513, 769]),
    heads=st.sampled_from([2, 3, 4]),
    head_dim=st.sampled_from([4, 6, 8]),
)


@settings(deadline=None, max_examples=10, derandomize=True)
@given(shape=shapes, dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_cost_is_exact_at_any_shape(name: str, shape: AttentionShape, dtype: torch.dtype) -> None:
    mechanism = MECHANISMS.load(name)
    subject = Subject(
        mechanism=mechanism,
        config=mechanism.config(),
        device=torch.device("cpu"),
        dtype=dtype,
        seed=0,
        short=shape,
        long=shape,
    )
    cost = mechanism.cost(shape, subject.config, dtype.itemsize)
    module = subject.module(shape)
    cache = module.new_cache(shape.batch)
    with torch.no_grad():
        module(subject.tokens(shape), cache)
    assert count_flop(subject, shape) == (cost.hardware_forward_flop, cost.hardware_backward_flop)
    assert count_saved_bytes(subject, shape) == cost.saved_bytes
    assert cache.nbytes == cost.cache_bytes
    assert sum(p.numel() for p in module.parameters()) == cost.parameters


def test_model_flop_do_not_exceed_hardware_flop(mechanism: Mechanism) -> None:
    for tokens in (1, 100, 1024, 8192):
        cost = mechanism.cost(AttentionShape(batch=1, tokens=tokens, width=768, heads=12), mechanism.config(), 4)
        assert 0 < cost.forward_flop <= cost.hardware_forward_flop
        assert 0 < cost.backward_flop <= cost.hardware_backward_flop


@pytest.mark.parametrize("tokens", [64, 1000])
def test_attended_pairs_agree_with_the_flop(mechanism: Mechanism, tokens: int) -> None:
    shape = AttentionShape(batch=2, tokens=tokens, width=96, heads=6)
    config = mechanism.configure({})
    assert mechanism.attends is not None
    attended = mechanism.attends(shape, config)
    assert attended_from_json(attended.to_json()) == attended
    if attended.form == "linear":
        pytest.skip("a running sum forms no pairs; its FLOPs are those of the chunked kernel")
    module = mechanism.build(shape, config, 0.0)
    weights = sum(p.numel() for name, p in module.named_parameters() if p.ndim == 2)
    window = attended.window or tokens
    pairs = attended.rounds * sum(min(t + 1, window) for t in range(tokens))
    products = 2 * shape.batch * attended.heads * pairs * (attended.key_dim + attended.value_dim)
    hashes = sum(2 * shape.batch * shape.heads * tokens * buffer.numel() for buffer in module.buffers())
    assert mechanism.cost(shape, config, 4).forward_flop == 2 * shape.batch * tokens * weights + products + hashes


def test_exact_mechanisms_are_quadratic_and_others_far_from_it(mechanism: Mechanism) -> None:
    growth = [_attention_flop(mechanism, tokens) for tokens in (4096, 8192)]
    if mechanism.exact:
        assert growth[1] / growth[0] == pytest.approx(4, rel=0.01)
    else:  # hashing alone has T x buckets terms, with buckets in proportion to T and a small factor
        assert growth[1] / growth[0] < 3


def test_dropout_is_supported_or_refused_with_a_reason(mechanism: Mechanism) -> None:
    shape = AttentionShape(batch=1, tokens=8, width=12, heads=3)
    if any("dropout" in limit.what and "cost" not in limit.what for limit in mechanism.limits):
        with pytest.raises(UserError, match="dropout"):
            mechanism.build(shape, mechanism.config(), 0.5)
        return
    module = mechanism.build(shape, mechanism.config(), 0.5)
    x = torch.randn(1, 8, 12)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


def _attention_flop(mechanism: Mechanism, tokens: int) -> int:
    """Return model FLOPs forward without the projections, whose share is that of a single token."""
    one, many = (
        mechanism.cost(AttentionShape(batch=1, tokens=t, width=768, heads=12), mechanism.config(), 4).forward_flop
        for t in (1, tokens)
    )
    return many - tokens * one


def test_trains_and_decodes_under_autocast(mechanism: Mechanism) -> None:
    """Parameters in float32, kernels in bfloat16: output and decoding stay near the float32 pass."""
    torch.manual_seed(0)
    module = mechanism.build(AttentionShape(batch=2, tokens=40, width=24, heads=6), mechanism.config(), 0.0)
    x = torch.randn(2, 40, 24, requires_grad=True)
    wanted = module(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = module(x)
    assert got.dtype == torch.bfloat16
    got.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cache = module.new_cache(2)
        parts = [module(part, cache) for part in torch.split(x, [30, 8, 1, 1], dim=1)]
    if mechanism.name != "lsh":  # in bfloat16 near ties hash otherwise, so single tokens may move far
        torch.testing.assert_close(got.float(), wanted, atol=0.02, rtol=0.05)
        torch.testing.assert_close(torch.cat(parts, dim=1).float(), wanted, atol=0.02, rtol=0.05)


def test_moves_to_a_device_and_dtype_as_a_whole(mechanism: Mechanism) -> None:
    """Nothing of the module is left behind: on the meta device a pass forms no real tensor."""
    module = mechanism.build(AttentionShape(batch=1, tokens=8, width=12, heads=3), mechanism.config(), 0.0)
    assert {t.device.type for t in module.to("meta").state_dict().values()} == {"meta"}
    doubled = mechanism.build(AttentionShape(batch=1, tokens=8, width=12, heads=3), mechanism.config(), 0.0).double()
    assert doubled(torch.randn(1, 8, 12, dtype=torch.float64)).dtype == torch.float64
