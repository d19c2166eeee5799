"""The flash kernel: what it multiplies, what it refuses, and that it is the one that runs."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from wattention.core.errors import UnsupportedError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import MECHANISMS
from wattention.mechanisms.costs import tiled_causal_pairs
from wattention.mechanisms.fused import flash_attention, flash_unavailable
from wattention.mechanisms.reference import causal, softmax_attention
from wattention.mechanisms.target import traced_for

SHAPE = AttentionShape(batch=2, tokens=40, width=24, heads=6)


@pytest.mark.parametrize("tokens", [1, 31, 33, 100, 191, 192, 300, 511, 513, 600, 767, 768, 800, 1025])
def test_counted_tiles_are_those_the_kernel_visits(tokens: int) -> None:
    """NaN in one value row poisons exactly the outputs whose tile is multiplied: 0 * NaN is NaN."""
    step = max(1, tokens // 16)
    rows = torch.arange(0, tokens, step)
    q, k, v = (torch.zeros(len(rows), 1, tokens, 2) for _ in range(3))
    v[torch.arange(len(rows)), :, rows] = math.nan
    out = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)[0]
    multiplied = out.isnan().any(dim=-1)[:, 0].sum(dim=1)
    counted = [tokens - _first_query_that_multiplies(int(row), tokens) for row in rows]
    assert multiplied.tolist() == counted
    if step == 1:
        assert int(multiplied.sum()) == tiled_causal_pairs(tokens)


def _first_query_that_multiplies(key: int, tokens: int) -> int:
    """Return the first query whose tile holds this key, read off the growth of the counted pairs."""
    from wattention.mechanisms.costs import KEY_BLOCK_TOKENS, query_block_tokens

    block = query_block_tokens(tokens)
    first_of_key_block = key // KEY_BLOCK_TOKENS * KEY_BLOCK_TOKENS
    return first_of_key_block // block * block


@given(tokens=st.integers(1, 3000))
@settings(deadline=None, max_examples=50)
def test_tiles_cover_the_triangle_and_no_more_than_the_square(tokens: int) -> None:
    assert tokens * (tokens + 1) // 2 <= tiled_causal_pairs(tokens) <= tokens * tokens


def test_tiles_by_hand() -> None:
    assert tiled_causal_pairs(512) == 512 * 512  # one block of keys
    assert tiled_causal_pairs(1024) == 512 * 512 + 512 * 1024  # two blocks of 256 queries see one, two see both
    assert tiled_causal_pairs(40, 30) == 40 * 30


@pytest.mark.parametrize("name", ["flash", "sdpa", "gqa", "mla"])
def test_flash_kernel_runs_forward_and_backward(name: str) -> None:
    names = _operators(name, dropout=0.0)
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert "aten::_scaled_dot_product_flash_attention_for_cpu_backward" in names
    assert "aten::_scaled_dot_product_attention_math" not in names
    assert "aten::repeat_interleave" not in names


@pytest.mark.parametrize("name", ["sdpa", "gqa", "mla"])
def test_dropout_moves_torch_to_its_math_kernel_as_the_limits_say(name: str) -> None:
    names = _operators(name, dropout=0.1)
    assert "aten::_scaled_dot_product_attention_math" in names
    assert any("dropout" in limit.what and "math kernel" in limit.why for limit in MECHANISMS.load(name).limits)


def _operators(name: str, dropout: float) -> set[str]:
    mechanism = MECHANISMS.load(name)
    module = mechanism.build(SHAPE, mechanism.config(), dropout)
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        module(torch.randn(2, 40, 24)).sum().backward()
    return {event.key for event in trace.key_averages()}


def test_flash_refuses_dropout() -> None:
    flash = MECHANISMS.load("flash")
    with pytest.raises(UnsupportedError, match=re.escape("got: dropout 0.1\n  wanted: dropout 0\n  do this: set")):
        flash.build(SHAPE, flash.config(), 0.1)


def test_flash_refuses_what_has_no_kernel() -> None:
    q = torch.zeros(1, 1, 4, 8, device="meta")
    with pytest.raises(UnsupportedError, match="torch has no flash kernel for device meta"):
        flash_attention(q, q, q)
    with pytest.raises(UnsupportedError, match="torch's CPU flash kernel has no int32 version"):
        flash_attention(*(torch.zeros(1, 1, 4, 8, dtype=torch.int32),) * 3)


def test_availability_reasons() -> None:
    assert flash_unavailable("cpu", "float32", 64) is None
    assert flash_unavailable("cuda", "float32", 64) == (
        "the CUDA flash kernel exists for float16 and bfloat16, not for float32"
    )
    assert (
        flash_unavailable("cuda", "bfloat16", 512) == "the CUDA flash kernel holds at most 256 features a head, not 512"
    )
    with traced_for("cuda", 7.5):
        assert flash_unavailable("cuda", "float16", 64) == (
            "the CUDA flash kernel needs compute capability 8.0 or newer, not 7.5"
        )
    with traced_for("cuda", 8.0):
        assert flash_unavailable("cuda", "float16", 64) is None
    assert flash_unavailable("mps", "float32", 64) == "torch has no flash kernel for device mps"


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 50), (7, 50), (50, 50), (32, 33)])
def test_queries_after_cached_keys_are_aligned_to_the_lower_right(T: int, S: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (T, S, S))
    wanted = softmax_attention(q, k, v, causal(S)[S - T :])
    torch.testing.assert_close(flash_attention(q, k, v), wanted)


@pytest.mark.cuda
@pytest.mark.parametrize(("T", "S", "D"), [(1, 50, 64), (7, 50, 64), (50, 50, 36)])
def test_flash_on_cuda_is_aligned_and_padded(T: int, S: int, D: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, D, dtype=torch.bfloat16, device="cuda") for n in (T, S, S))
    wanted = softmax_attention(q.double(), k.double(), v.double(), causal(S)[S - T :])
    torch.testing.assert_close(flash_attention(q, k, v).double(), wanted, atol=2e-2, rtol=2e-2)
