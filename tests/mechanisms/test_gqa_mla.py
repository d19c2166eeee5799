"""Grouped-query and latent attention: sizes, settings, and the equalities that define them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms import gqa, mla
from wattention.mechanisms.base import MECHANISMS
from wattention.mechanisms.caches import GrowingCache

GPT2 = AttentionShape(batch=1, tokens=1024, width=768, heads=12)
SMALL = AttentionShape(batch=2, tokens=20, width=24, heads=6)


@pytest.mark.parametrize(("heads", "groups"), [(12, 4), (16, 4), (20, 5), (25, 5), (4, 1), (6, 2), (1, 1), (7, 1)])
def test_default_groups_are_near_a_third(heads: int, groups: int) -> None:
    shape = AttentionShape(batch=1, tokens=8, width=heads * 4, heads=heads)
    assert gqa.kv_heads(shape, gqa.GqaConfig()) == groups


def test_groups_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UserError, match="got: kv_heads 5, heads 12\n  wanted: one of 1, 2, 3, 4, 6, 12"):
        gqa.build(GPT2, gqa.GqaConfig(kv_heads=5), 0.0)


def test_as_many_groups_as_heads_is_multi_head_attention() -> None:
    baseline = MECHANISMS.load("baseline")
    grouped = gqa.build(SMALL, gqa.GqaConfig(kv_heads=6), 0.0)
    plain = baseline.build(SMALL, baseline.config(), 0.0)
    plain.load_state_dict(grouped.state_dict())
    x = torch.randn(2, 20, 24)
    torch.testing.assert_close(grouped(x), plain(x))
    assert gqa.cost(SMALL, gqa.GqaConfig(kv_heads=6), 4) == MECHANISMS.load("sdpa").cost(SMALL, None, 4)


def test_groups_shrink_projections_and_cache() -> None:
    full, third = (gqa.cost(GPT2, gqa.GqaConfig(kv_heads=groups), 4) for groups in (12, 4))
    assert third.cache_bytes * 3 == full.cache_bytes
    assert full.parameters - third.parameters == 2 * (768 + 1) * 8 * 64


def test_latent_sizes_of_gpt2_follow_the_paper() -> None:
    assert mla.kv_rank(GPT2, mla.MlaConfig()) == 4 * 64
    assert mla.rope_dim(GPT2, mla.MlaConfig()) == 64 // 2
    cost = mla.cost(GPT2, mla.MlaConfig(), 2)
    assert cost.cache_bytes == 1024 * (256 + 32) * 2
    assert MECHANISMS.load("sdpa").cost(GPT2, None, 2).cache_bytes / cost.cache_bytes == pytest.approx(5.33, abs=0.01)


@settings(deadline=None, max_examples=40)
@given(heads=st.integers(1, 12), head_dim=st.integers(1, 70))
def test_default_latent_sizes_exist_for_every_shape(heads: int, head_dim: int) -> None:
    shape = AttentionShape(batch=1, tokens=4, width=heads * head_dim, heads=heads)
    assert 1 <= mla.kv_rank(shape, mla.MlaConfig()) <= shape.width
    assert mla.rope_dim(shape, mla.MlaConfig()) % 2 == 0
    assert mla.rope_dim(shape, mla.MlaConfig()) >= 2


def test_odd_rope_dim_is_refused() -> None:
    with pytest.raises(UserError, match="RoPE turns pairs of features\n  got: rope_dim 3"):
        mla.build(SMALL, mla.MlaConfig(rope_dim=3), 0.0)


def test_rotation_depends_on_the_distance_only() -> None:
    q, k = torch.randn(1, 1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 1, 8, dtype=torch.float64)

    def score(i: int, j: int) -> float:
        return float((_turned(q, i) * _turned(k, j)).sum())

    assert score(7, 3) == pytest.approx(score(1004, 1000))
    assert score(7, 3) != pytest.approx(score(7, 4))
    torch.testing.assert_close(_turned(q, 0), q)
    torch.testing.assert_close(_turned(q, 900).norm(), q.norm())


def _turned(x: torch.Tensor, position: int) -> torch.Tensor:
    cos, sin = mla.turns(x, position, 8, 10_000.0)
    return mla.rotate(x, cos, sin)


@pytest.mark.parametrize("query_rank", [None, 10])
def test_absorbed_projections_give_the_expanded_attention(query_rank: int | None) -> None:
    """In float64 the two orders of multiplication agree to rounding, so absorption changes nothing."""
    module = mla.build(SMALL, mla.MlaConfig(query_rank=query_rank), 0.0).double()
    x = torch.randn(2, 20, 24, dtype=torch.float64)
    with torch.no_grad():
        full, cache = module(x), module.new_cache(2)
        parts = [module(part, cache) for part in torch.split(x, [1, 9, 1, 9], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), full)


def test_cache_is_one_latent_for_all_heads() -> None:
    module = mla.build(SMALL, mla.MlaConfig(kv_rank=8, rope_dim=4), 0.0)
    cache = module.new_cache(2)
    module(torch.randn(2, 20, 24), cache)
    assert isinstance(cache, GrowingCache)
    assert [tuple(held.shape) for held in cache.held()] == [(2, 20, 8 + 4)]


def test_query_compression_conforms() -> None:
    from wattention.lab.conformance import run_gate

    report = run_gate(MECHANISMS.load("mla"), config=mla.MlaConfig(query_rank=10, kv_rank=5, rope_dim=4))
    assert report.passed, [v for v in report.clauses if v.status == "failed"]
