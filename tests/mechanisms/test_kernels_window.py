"""The block kernels against plain attention over explicit masks, on both of their paths."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wattention.mechanisms.fused import band_unavailable, flash_band
from wattention.mechanisms.kernels.bucket_window import bucket_window_attention, keys_from_queries, sort_by_bucket
from wattention.mechanisms.kernels.hashing import bucket_ids, random_rotations
from wattention.mechanisms.kernels.window import (
    BlockKernel,
    band_pairs,
    block_kernel,
    multiplied_pairs,
    pieces,
    window_attention,
)

KERNELS = pytest.mark.parametrize("kernel", ["flash", "matmul"])


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def plain(q: Tensor, k: Tensor, v: Tensor, times: Tensor) -> Tensor:
    """Softmax attention in which the pair (t, s) counts times[t, s]."""
    scores = q @ k.mT / math.sqrt(q.shape[-1]) + times.log()
    return torch.softmax(scores, dim=-1) @ v


def band(tokens: int, window: int) -> Tensor:
    ones = torch.ones(tokens, tokens, dtype=torch.float64)
    return ones.tril() - ones.tril(-window)


def equal(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@KERNELS
@settings(deadline=None, max_examples=12, derandomize=True)
@given(tokens=st.integers(1, 200), window=st.sampled_from([1, 2, 31, 32, 33, 64, 150]), heads=st.integers(1, 3))
def test_window_is_softmax_over_a_band(kernel: BlockKernel, tokens: int, window: int, heads: int) -> None:
    q, k, v = (drawn(2, tokens, heads, 4, seed=s).transpose(1, 2) for s in range(3))
    g = drawn(2, heads, tokens, 4, seed=3).detach()
    got = window_attention(q, k, v, window=window, kernel=kernel)
    wanted = plain(q, k, v, band(tokens, window))
    equal((got, *torch.autograd.grad(got, (q, k, v), g)), (wanted, *torch.autograd.grad(wanted, (q, k, v), g)))


@given(tokens=st.integers(1, 3000), window=st.integers(1, 600))
def test_pieces_cover_every_query_once_and_all_of_its_keys(tokens: int, window: int) -> None:
    at = 0
    for piece in pieces(tokens, window):
        assert piece.start == at
        for block in range(piece.blocks):
            first_query, first_key = at + block * piece.queries, piece.key_start + block * piece.queries
            assert first_key <= max(0, first_query - window + 1)
            assert first_key + piece.keys == first_query + piece.queries
        at += piece.blocks * piece.queries
    assert at == tokens
    assert multiplied_pairs(tokens, window) >= band_pairs(tokens, window)


@given(tokens=st.integers(1, 80), window=st.integers(1, 90))
def test_band_pairs_are_the_ones_of_the_mask(tokens: int, window: int) -> None:
    assert band_pairs(tokens, window) == int(band(tokens, window).sum())


def test_window_work_is_linear_in_tokens() -> None:
    pairs = [multiplied_pairs(tokens, 256) for tokens in (4096, 8192, 12288)]
    assert pairs[2] - pairs[1] == pairs[1] - pairs[0]
    assert multiplied_pairs(16384, 256) < 1.3 * band_pairs(16384, 256)


def test_layout_of_the_output_joins_heads_without_a_copy() -> None:
    out = window_attention(*(drawn(2, 40, 3, 4).transpose(1, 2) for _ in range(3)), window=8)
    assert out.transpose(1, 2).is_contiguous()


def test_features_that_are_apart_are_copied() -> None:
    q, k, v = (drawn(1, 2, 4, 40, seed=s).mT for s in range(3))
    equal((window_attention(q, k, v, window=8),), (plain(q, k, v, band(40, 8)),))


@KERNELS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_in_float32(kernel: BlockKernel, dtype: torch.dtype) -> None:
    q, k, v = (drawn(1, 2, 300, 16, seed=s).detach() for s in range(3))
    low = tuple(x.to(dtype).requires_grad_() for x in (q, k, v))
    got = window_attention(*low, window=64, kernel=kernel)
    exact = tuple(x.detach().double().requires_grad_() for x in low)
    wanted = plain(*exact, band(300, 64))
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)
    g = torch.ones_like(got)
    for a, b in zip(torch.autograd.grad(got, low, g), torch.autograd.grad(wanted, exact, g.double()), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=4 * tolerance)


def test_second_derivatives_are_refused() -> None:
    q, k, v = (drawn(1, 1, 8, 4, seed=s) for s in range(3))
    (dq,) = torch.autograd.grad(window_attention(q, k, v, window=4).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


def test_kernel_is_a_matter_of_the_device() -> None:
    assert block_kernel(torch.device("cpu")) == "flash"
    assert block_kernel(torch.device("cuda")) == "matmul"
    assert block_kernel(torch.device("meta")) == "matmul"


def times_in_buckets(ids: Tensor, earlier: int) -> Tensor:
    """Count by loops: 1 for itself, and 1 for each round in which s is one of the latest of t's bucket."""
    B, H, rounds, T = ids.shape
    times = torch.eye(T, dtype=torch.float64).expand(B, H, T, T).clone()
    for b, h, r, t in torch.cartesian_prod(*(torch.arange(n) for n in (B, H, rounds, T))).tolist():
        same = [s for s in range(t) if ids[b, h, r, s] == ids[b, h, r, t]]
        for s in same[-earlier:]:
            times[b, h, t, s] += 1
    return times


@KERNELS
@pytest.mark.parametrize(
    ("tokens", "earlier", "rounds", "buckets"), [(1, 3, 2, 4), (70, 5, 3, 4), (40, 64, 2, 2), (90, 40, 1, 6)]
)
def test_buckets_are_softmax_over_the_pairs_of_all_rounds(
    kernel: BlockKernel, tokens: int, earlier: int, rounds: int, buckets: int
) -> None:
    q, v = (drawn(2, tokens, 2, 4, seed=s).transpose(1, 2) for s in range(2))
    g = drawn(2, 2, tokens, 4, seed=3).detach()
    rotations = random_rotations(rounds, 4, buckets, seed=1)
    got = bucket_window_attention(q, v, rotations, earlier=earlier, kernel=kernel)
    k = q / (q.square().sum(-1, keepdim=True) + 1e-12).sqrt()
    wanted = plain(q, k, v, times_in_buckets(bucket_ids(q, rotations), earlier))
    equal((got, *torch.autograd.grad(got, (q, v), g)), (wanted, *torch.autograd.grad(wanted, (q, v), g)))


def test_zero_queries_have_zero_keys_and_finite_gradients() -> None:
    q = torch.zeros(1, 1, 6, 4, requires_grad=True)
    v = drawn(1, 1, 6, 4).detach().float()
    out = bucket_window_attention(q, v, random_rotations(2, 4, 4, seed=0), earlier=2)
    out.square().sum().backward()
    assert q.grad is not None
    assert bool(q.grad.isfinite().all())
    assert bool((keys_from_queries(q) == 0).all())


def test_hash_depends_on_direction_only_and_opposites_part() -> None:
    x, rotations = drawn(50, 8).detach(), random_rotations(3, 8, 6, seed=0)
    ids = bucket_ids(x, rotations)
    assert ids.shape == (3, 50)
    assert bool(((ids >= 0) & (ids < 6)).all())
    assert torch.equal(bucket_ids(5 * x, rotations), ids)
    assert torch.equal(bucket_ids(-x, rotations), (ids + 3) % 6)


def test_near_vectors_collide_more_often_than_far_ones() -> None:
    x, noise, rotations = (
        drawn(2000, 16).detach(),
        drawn(2000, 16, seed=9).detach(),
        random_rotations(4, 16, 16, seed=0),
    )
    ids = bucket_ids(x, rotations)
    near = (bucket_ids(x + 0.2 * noise, rotations) == ids).double().mean()
    far = (bucket_ids(noise, rotations) == ids).double().mean()
    assert near > 0.5
    assert far < 0.1


def test_hash_is_made_in_float32_under_autocast() -> None:
    x, rotations = drawn(400, 16).detach().float(), random_rotations(2, 16, 16, seed=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(bucket_ids(x, rotations), bucket_ids(x.double(), rotations))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_sorting_keeps_positions_in_order_within_buckets(ids: list[int]) -> None:
    T = len(ids)
    tokens = sort_by_bucket(torch.tensor(ids))
    assert [(t // T, t % T) for t in tokens.tolist()] == sorted((bucket, i) for i, bucket in enumerate(ids))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [1, 64, 300, 500])
@pytest.mark.parametrize("features", [64, 12])
def test_cuda_s_flash_kernel_keeps_to_the_band(window: int, features: int) -> None:
    reason = band_unavailable("cuda", "bfloat16", features)
    if reason is not None:
        pytest.skip(reason)
    inputs = [drawn(2, 3, 300, features, seed=s).detach() for s in range(4)]

    def passed(attend: Any, dtype: torch.dtype, device: str) -> list[torch.Tensor]:
        q, k, v, g = (x.to(device, dtype).requires_grad_() for x in inputs)
        out = attend(q, k, v, window=window)
        return [x.double().cpu() for x in (out, *torch.autograd.grad(out, (q, k, v), g))]

    exact = passed(window_attention, torch.float64, "cpu")
    fused, blocks = (passed(attend, torch.bfloat16, "cuda") for attend in (flash_band, window_attention))
    for wanted, one, other in zip(exact, fused, blocks, strict=True):
        assert (one - wanted).abs().max() <= 2 * (other - wanted).abs().max() + 1e-3


def test_only_cuda_s_flash_kernel_keeps_to_a_band() -> None:
    assert band_unavailable("cuda", "bfloat16", 64) is None
    assert "no bands on device cpu" in str(band_unavailable("cpu", "bfloat16", 64))
    assert "not for float32" in str(band_unavailable("cuda", "float32", 64))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_both_kernels_agree_across_devices() -> None:
    q, k, v = (drawn(2, 3, 300, 16, seed=s).detach().float() for s in range(3))
    on_cpu = window_attention(q, k, v, window=64)
    on_gpu = window_attention(q.cuda(), k.cuda(), v.cuda(), window=64)
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-3, atol=1e-3)
    rotations = random_rotations(2, 16, 4, seed=0)
    on_cpu = bucket_window_attention(q, v, rotations, earlier=20)
    on_gpu = bucket_window_attention(q.cuda(), v.cuda(), rotations.cuda(), earlier=20)
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-3, atol=1e-3)
