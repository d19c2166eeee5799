# ruff: noqa: F722 (shape annotations are not Python)
"""Caches, head layouts and references that the mechanisms share; shapes checked by their annotations."""

import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float, jaxtyped
from torch import Tensor

from wattention.mechanisms import fused, multihead, reference
from wattention.mechanisms.caches import GrowingCache


@settings(deadline=None, max_examples=30)
@given(chunks=st.lists(st.integers(1, 90), min_size=1, max_size=8))
def test_cache_holds_what_was_appended_in_order(chunks: list[int]) -> None:
    cache = GrowingCache()
    k, v = torch.randn(2, 3, sum(chunks), 4), torch.randn(2, 3, sum(chunks), 5)
    for part_k, part_v in zip(torch.split(k, chunks, dim=2), torch.split(v, chunks, dim=2), strict=True):
        held_k, held_v = cache.append(part_k, part_v)
    assert torch.equal(held_k, k)
    assert torch.equal(held_v, v)
    assert cache.length == sum(chunks)
    assert cache.nbytes == 4 * (k.numel() + v.numel())


def test_cache_reserves_geometrically() -> None:
    cache, stores = GrowingCache(), set()
    for _ in range(1000):
        cache.append(torch.zeros(1, 1, 1, 1))
        stores.add(cache.held()[0].untyped_storage().nbytes())
    assert stores == {4 * tokens for tokens in (65, 130, 260, 520, 1040)}


def test_the_tokens_after_a_prompt_find_room() -> None:
    cache = GrowingCache()
    prompt = torch.randn(2, 3, 100, 4)
    (first,) = cache.append(prompt)
    store = cache.held()[0].untyped_storage().data_ptr()
    (held,) = cache.append(prompt[:, :, :64])
    assert first is prompt
    assert held.untyped_storage().data_ptr() == store
    assert torch.equal(held, torch.cat([prompt, prompt[:, :, :64]], dim=2))


def test_cache_takes_the_dtype_of_its_tokens_and_cuts_the_graph() -> None:
    cache = GrowingCache()
    cache.append(torch.zeros(1, 2, 3, dtype=torch.bfloat16, requires_grad=True))
    (held,) = cache.held()
    assert held.dtype == torch.bfloat16
    assert not held.requires_grad
    assert cache.nbytes == 12


@jaxtyped(typechecker=beartype)
def split(x: Float[Tensor, "B T C"], heads: int) -> Float[Tensor, "B {heads} T C//{heads}"]:
    return multihead.split_heads(x, heads)


@jaxtyped(typechecker=beartype)
def join(x: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T H*D"]:
    return multihead.join_heads(x)


@jaxtyped(typechecker=beartype)
def fast(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"], v: Float[Tensor, "B H S D"]
) -> Float[Tensor, "B H T D"]:
    return fused.flash_attention(q, k, v)


@jaxtyped(typechecker=beartype)
def slow(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H S D"], v: Float[Tensor, "B H S V"]
) -> Float[Tensor, "B H T V"]:
    return reference.softmax_attention(q, k, v, reference.causal(k.shape[2])[-q.shape[2] :])


def test_head_layouts_are_inverse() -> None:
    x = torch.randn(2, 5, 12)
    assert torch.equal(join(split(x, 3)), x)
    assert torch.equal(split(x, 3), reference.heads_of(x, 3))
    assert torch.equal(reference.joined(split(x, 3)), x)


@pytest.mark.parametrize(("T", "S"), [(5, 5), (2, 5), (1, 5)])
def test_fused_and_plain_attention_agree(T: int, S: int) -> None:
    q, k, v = torch.randn(2, 3, T, 4), torch.randn(2, 3, S, 4), torch.randn(2, 3, S, 4)
    torch.testing.assert_close(fast(q, k, v), slow(q, k, v))
    assert slow(q, k, v[..., :2]).shape == (2, 3, T, 2)


def test_reference_attention_by_hand() -> None:
    q, k = torch.zeros(1, 1, 3, 2), torch.randn(1, 1, 3, 2)
    v = torch.tensor([[2.0], [4.0], [9.0]])[None, None]
    assert slow(q, k, v).flatten().tolist() == pytest.approx([2.0, 3.0, 5.0])


def test_scale_defaults_to_the_root_of_the_head_dim() -> None:
    q = torch.full((1, 1, 2, 4), 1.0)
    k = torch.tensor([[0.0] * 4, [1.0] * 4])[None, None]
    v = torch.tensor([[0.0], [1.0]])[None, None]
    assert slow(q, k, v)[0, 0, 1, 0].item() == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item())
