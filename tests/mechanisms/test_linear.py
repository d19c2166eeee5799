"""Linear attention: its sums, its precision, its state."""

import pytest
import torch
from torch import Tensor

from wattention.core.errors import UnsupportedError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.kernels.causal_linear import FEATURE_MAPS, causal_linear_attention
from wattention.mechanisms.linear import MECHANISM, LinearConfig

SHAPE = AttentionShape(batch=2, tokens=150, width=12, heads=3)
EPS = 1e-6
FEATURES = {
    "elu+1": lambda x: torch.where(x > 0, x + 1, x.exp()),
    "relu": torch.relu,
    "softmax": lambda x: torch.softmax(x, dim=-1),
}


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def quadratic(q: Tensor, k: Tensor, v: Tensor, name: str) -> Tensor:
    """All pairs at once, which the recurrence must equal."""
    pairs = (FEATURES[name](q) @ FEATURES[name](k).mT).tril()
    return pairs @ v / (pairs.sum(-1, keepdim=True) + EPS)


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_chunks_equal_all_pairs(name: str, tokens: int) -> None:
    q, k, v, g = (drawn(2, tokens, 2, 5, seed=s).transpose(1, 2) for s in range(4))
    got, wanted = causal_linear_attention(q, k, v, FEATURE_MAPS[name], EPS), quadratic(q, k, v, name)
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)
    gradients = zip(torch.autograd.grad(got, (q, k, v), g), torch.autograd.grad(wanted, (q, k, v), g), strict=True)
    for a, b in gradients:
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FEATURES)
def test_reference_is_the_quadratic_form(name: str) -> None:
    config = LinearConfig(feature_map=name)
    module = MECHANISM.build(SHAPE, config, 0.0).double()
    x = drawn(2, 150, 12, seed=0)
    q, k, v = (part.unflatten(-1, (3, 4)).transpose(1, 2) for part in module.qkv(x).chunk(3, dim=-1))
    wanted = module.out(quadratic(q, k, v, name).transpose(1, 2).flatten(2))
    torch.testing.assert_close(MECHANISM.reference(module.state_dict(), x, SHAPE, config), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_long_sums_stay_finite_and_exact_in_half_precision(dtype: torch.dtype) -> None:
    q, k, v = (drawn(1, 1, 4096, 16, seed=s).detach().mul(3).to(dtype).requires_grad_() for s in range(3))
    y = causal_linear_attention(q, k, v, FEATURE_MAPS["elu+1"], EPS)
    wanted = quadratic(*(x.detach().double() for x in (q, k, v)), "elu+1")  # Σ φ(k) passes 65504, float16's largest
    torch.testing.assert_close(y.double(), wanted, rtol=0, atol=4 * torch.finfo(dtype).eps * float(wanted.abs().max()))
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(y.float().sum(), (q, k, v)))


def test_autocast_leaves_the_sums_in_float32() -> None:
    q, k, v = (drawn(1, 2, 100, 8, seed=s).detach().float().requires_grad_() for s in range(3))
    plain = causal_linear_attention(q, k, v, FEATURE_MAPS["elu+1"], EPS)
    wanted = torch.autograd.grad(plain.square().sum(), (q, k, v))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = causal_linear_attention(q, k, v, FEATURE_MAPS["elu+1"], EPS)
        got = torch.autograd.grad(cast.square().sum(), (q, k, v))
    assert torch.equal(cast, plain)
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_features_stay_positive_where_elu_plus_one_would_cancel() -> None:
    x = torch.tensor([[-60.0, -20.0, 0.0, 3.0]])
    torch.testing.assert_close(
        FEATURE_MAPS["elu+1"].apply(x), torch.tensor([[-60.0, -20.0, 0.0, 0.0]]).exp() + x.relu()
    )


def test_dead_features_give_zero_and_not_nan() -> None:
    q = torch.full((1, 1, 5, 4), -1.0, requires_grad=True)
    y = causal_linear_attention(q, q, torch.ones_like(q), FEATURE_MAPS["relu"], EPS)
    y.sum().backward()
    assert bool((y == 0).all())
    assert q.grad is not None
    assert bool(q.grad.isfinite().all())


def test_state_does_not_grow() -> None:
    module = MECHANISM.build(SHAPE, LinearConfig(), 0.0)
    cache, x = module.new_cache(2), torch.randn(2, 150, 12)
    sizes = []
    for part in x.split([100, 1, 49], dim=1):
        module(part, cache)
        sizes.append(cache.nbytes)
    assert cache.length == 150
    assert set(sizes) == {2 * 3 * 4 * (4 + 1) * 4}


def test_dropout_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"no attention weights to drop\n  got: dropout 0.1"):
        MECHANISM.build(SHAPE, LinearConfig(), 0.1)


def test_second_derivatives_are_refused() -> None:
    q, k, v = (drawn(1, 1, 8, 4, seed=s) for s in range(3))
    y = causal_linear_attention(q, k, v, FEATURE_MAPS["elu+1"], EPS)
    (dq,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu() -> None:
    q, k, v = (drawn(2, 3, 200, 16, seed=s).detach().float() for s in range(3))
    on_cpu = causal_linear_attention(q, k, v, FEATURE_MAPS["elu+1"], EPS)
    on_gpu = causal_linear_attention(q.cuda(), k.cuda(), v.cuda(), FEATURE_MAPS["elu+1"], EPS)
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-3, atol=1e-3)
