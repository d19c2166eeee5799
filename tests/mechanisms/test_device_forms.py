"""What a kernel does on a GPU, done here: all sequences at once, few calls. It must equal what it does on a CPU."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from wattention.core.shapes import AttentionShape
from wattention.mechanisms.base import MECHANISMS
from wattention.mechanisms.kernels import rounds
from wattention.mechanisms.kernels.rounds import alike, groups_of_heads, rounds_counted_by
from wattention.mechanisms.target import traced_for

WITH_A_DEVICE_FORM = ("linear", "sliding_window", "lsh")


def attended(name: str, target: str, tokens: int) -> tuple[Tensor, ...]:
    """Return the output of a layer and the gradients of its input and parameters."""
    shape = AttentionShape(batch=3, tokens=tokens, width=24, heads=3)
    mechanism = MECHANISMS.load(name)
    torch.manual_seed(7)
    layer = mechanism.build(shape, mechanism.config(), 0.0).double()
    x = torch.randn(3, tokens, 24, dtype=torch.float64, requires_grad=True)
    with traced_for(target):
        out = layer(x)
        out.backward(torch.randn(3, tokens, 24, dtype=torch.float64))
    assert x.grad is not None
    return out.detach(), x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", WITH_A_DEVICE_FORM)
@pytest.mark.parametrize("tokens", [1, 63, 300])
@pytest.mark.parametrize("group_tokens", [1, 700, 65536])
def test_the_form_for_a_gpu_equals_the_one_for_a_cpu(
    name: str, tokens: int, group_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "DEVICE_GROUP_TOKENS", group_tokens)
    for here, there in zip(attended(name, "cpu", tokens), attended(name, "cuda", tokens), strict=True):
        torch.testing.assert_close(there, here, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(("batch", "heads", "tokens"), [(1, 1, 9000), (3, 5, 1500), (2, 4, 4096), (7, 12, 100)])
def test_groups_cover_every_head_once(target: str, batch: int, heads: int, tokens: int) -> None:
    x = torch.zeros(batch, heads)
    with traced_for(target):
        for part in groups_of_heads(x, tokens):
            assert x[part].numel() > 0
            x[part] += 1
    assert bool((x == 1).all())


def test_a_trace_runs_one_round_and_counts_it_for_all() -> None:
    factor, counted = [1], [0]

    @contextmanager
    def repeating(times: int) -> Any:
        factor[0] *= times
        yield
        factor[0] //= times

    seen = []
    with rounds_counted_by(repeating):
        for outer in alike(range(5)):
            for inner in alike("abc"):
                seen.append((outer, inner))
                counted[0] += factor[0]
    assert seen == [(0, "a")]
    assert counted == [15]
    assert list(alike(range(5))) == [0, 1, 2, 3, 4]
