"""Hashed attention: settings, causality of the choice of keys, the cache."""

import pytest
import torch

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.kernels.hashing import bucket_ids
from wattention.mechanisms.lsh import MECHANISM, Hashing, LshConfig, hashing, times_seen

SHAPE = AttentionShape(batch=2, tokens=60, width=8, heads=2)


def test_defaults_follow_the_context() -> None:
    wanted = {1: (1, 2), 2: (1, 2), 37: (9, 4), 256: (64, 4), 1024: (64, 16), 8192: (64, 128)}
    for tokens, (earlier, buckets) in wanted.items():
        shape = AttentionShape(batch=1, tokens=tokens, width=8, heads=2)
        assert hashing(shape, LshConfig()) == Hashing(rounds=4, earlier=earlier, buckets=buckets)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UserError, match="more earlier tokens than the context has\n  got: earlier 60, context 60"):
        MECHANISM.build(SHAPE, LshConfig(earlier=60), 0.0)
    with pytest.raises(UserError, match="buckets come in opposite pairs\n  got: buckets 5"):
        MECHANISM.build(SHAPE, LshConfig(buckets=5), 0.0)
    with pytest.raises(UnsupportedError, match="drops no attention weights"):
        MECHANISM.build(SHAPE, LshConfig(), 0.1)


def test_one_bucket_pair_and_many_earlier_tokens_leave_only_the_hash_to_hide_keys() -> None:
    ids = torch.zeros(1, 1, 3, 20, dtype=torch.long)  # all tokens in one bucket, three rounds
    wanted = 3 * torch.ones(20, 20, dtype=torch.long).tril(-1) + torch.eye(20, dtype=torch.long)
    assert torch.equal(times_seen(ids, 19)[0, 0], wanted)


def test_only_the_latest_of_the_own_bucket_are_seen() -> None:
    ids = torch.tensor([0, 1, 0, 0, 1, 0]).view(1, 1, 1, 6)
    seen = [row.nonzero().flatten().tolist() for row in times_seen(ids, 2)[0, 0]]
    assert seen == [[0], [1], [0, 2], [0, 2, 3], [1, 4], [2, 3, 5]]


def test_later_tokens_do_not_choose_keys() -> None:
    module = MECHANISM.build(SHAPE, LshConfig(earlier=5), 0.0)
    x = torch.randn(1, 4, 60, 4, generator=torch.Generator().manual_seed(0))
    changed = torch.cat((x[:, :, :30], torch.randn(1, 4, 30, 4)), dim=2)
    before, after = (times_seen(bucket_ids(q, module.rotations), 5)[..., :30, :30] for q in (x, changed))
    assert torch.equal(before, after)


def test_rotations_come_from_the_seed_and_travel_with_the_state() -> None:
    one, same, other = (MECHANISM.build(SHAPE, LshConfig(seed=s), 0.0) for s in (1, 1, 2))
    assert torch.equal(one.rotations, same.rotations)
    assert not torch.equal(one.rotations, other.rotations)
    other.load_state_dict(one.state_dict())
    x = torch.randn(2, 60, 8)
    assert torch.equal(one(x), other(x))


@pytest.mark.parametrize("split", [[60], [20, 40], [1] * 60, [7, 1, 30, 22]])
def test_decoding_in_any_pieces_equals_the_full_pass(split: list[int]) -> None:
    module = MECHANISM.build(SHAPE, LshConfig(earlier=3, rounds=2), 0.0).double()
    x = torch.randn(2, 60, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = module.new_cache(2)
        assert cache.nbytes == 0
        y = torch.cat([module(part, cache) for part in x.split(split, dim=1)], dim=1)
        torch.testing.assert_close(y, module(x))
        assert cache.length == 60


def test_autocast_hashes_what_float32_hashes() -> None:
    module = MECHANISM.build(SHAPE, LshConfig(), 0.0)
    x = torch.randn(2, 60, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        q = module.qv(x).chunk(2, dim=-1)[0].view(2, 60, 2, 4).transpose(1, 2)
        low = bucket_ids(module._hashed(x, q), module.rotations)
    with torch.no_grad():
        high = bucket_ids(module.qv(x).chunk(2, dim=-1)[0].view(2, 60, 2, 4).transpose(1, 2), module.rotations)
    assert torch.equal(low, high)
