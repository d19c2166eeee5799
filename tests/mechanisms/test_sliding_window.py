"""Sliding-window attention: whom a token sees, the ring, the settings."""

import pytest
import torch

from wattention.core.errors import UnsupportedError, UserError
from wattention.core.shapes import AttentionShape
from wattention.mechanisms.sliding_window import MECHANISM, RingCache, SlidingWindowConfig, window_tokens

SHAPE = AttentionShape(batch=1, tokens=40, width=8, heads=2)


@pytest.mark.parametrize("window", [1, 7, 40])
def test_a_token_moves_exactly_the_outputs_that_see_it(window: int) -> None:
    module = MECHANISM.build(SHAPE, SlidingWindowConfig(window=window), 0.0)
    x = torch.randn(1, 40, 8, generator=torch.Generator().manual_seed(0))
    y = module(x)
    for s in range(40):
        changed = x.clone()
        changed[:, s] += 1
        moved = (module(changed) != y).any(-1)[0].nonzero().flatten().tolist()
        assert moved == list(range(s, min(s + window, 40)))


def test_default_window_is_a_quarter_of_the_context_up_to_256() -> None:
    wanted = {1: 1, 3: 1, 37: 9, 512: 128, 1024: 256, 8192: 256}
    shapes = {T: AttentionShape(batch=1, tokens=T, width=8, heads=2) for T in wanted}
    assert {T: window_tokens(shape, SlidingWindowConfig()) for T, shape in shapes.items()} == wanted


def test_window_above_the_context_is_an_error() -> None:
    with pytest.raises(UserError, match="the window is longer than the context\n  got: window 41, context 40"):
        MECHANISM.build(SHAPE, SlidingWindowConfig(window=41), 0.0)


def test_dropout_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="drops no attention weights"):
        MECHANISM.build(SHAPE, SlidingWindowConfig(), 0.1)


def test_ring_holds_the_latest_tokens_in_order() -> None:
    ring, tokens = RingCache(5), torch.arange(23.0).view(1, 1, 23, 1)
    assert ring.nbytes == 0
    fed = 0
    for size in (3, 1, 1, 1, 9, 2, 6):
        part = tokens[:, :, fed : fed + size]
        ring.append(part, -part)
        fed += size
        keys, values = ring.latest()
        assert keys.flatten().tolist() == list(range(max(0, fed - 5), fed))
        assert torch.equal(values, -keys)
        assert ring.length == fed
        assert ring.nbytes == 2 * 4 * min(fed, 5)


@pytest.mark.parametrize("split", [[40], [10, 30], [1] * 40, [3, 1, 20, 1, 15]])
def test_decoding_in_any_pieces_equals_the_full_pass(split: list[int]) -> None:
    module = MECHANISM.build(SHAPE, SlidingWindowConfig(window=7), 0.0).double()
    x = torch.randn(1, 40, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        cache = module.new_cache(1)
        y = torch.cat([module(part, cache) for part in x.split(split, dim=1)], dim=1)
        torch.testing.assert_close(y, module(x))
