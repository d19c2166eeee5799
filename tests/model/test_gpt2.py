"""GPT-2: causal, initialised as GPT-2 is, the same with a cache as without."""

import math

import pytest
import torch

from wattention.core.errors import UserError
from wattention.core.specs import IGNORE, ModelSpec
from wattention.mechanisms.base import MECHANISMS
from wattention.model.generation import generate
from wattention.model.gpt2 import GPT2, decay_groups

SPEC = ModelSpec(layers=2, heads=2, width=16, context=24, vocabulary=31)


def model_of(mechanism: str = "sdpa", spec: ModelSpec = SPEC, seed: int = 0) -> GPT2:
    return GPT2(spec, MECHANISMS.load(mechanism), seed=seed)


def tokens(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(SPEC.vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def test_loss_is_the_mean_over_targets_that_have_one() -> None:
    model, idx = model_of(), tokens(2, 9)
    targets = tokens(2, 9, seed=1)
    targets[0, :5] = IGNORE
    log_p = model(idx).log_softmax(-1)
    kept = [(b, t) for b in range(2) for t in range(9) if targets[b, t] != IGNORE]
    expected = -sum(log_p[b, t, targets[b, t]] for b, t in kept) / len(kept)
    torch.testing.assert_close(model(idx, targets), expected)


def test_positions_may_be_given() -> None:
    model, idx = model_of("sdpa").double(), tokens(2, 9)
    torch.testing.assert_close(model(idx, positions=torch.arange(9)), model(idx), rtol=0, atol=1e-14)
    shifted = model(idx, positions=torch.arange(5, 14))
    with torch.no_grad():
        model.positions.weight.copy_(model.positions.weight.roll(-5, 0))  # position t now holds what t + 5 held
    torch.testing.assert_close(model(idx), shifted, rtol=0, atol=1e-14)


def test_later_tokens_do_not_change_earlier_logits() -> None:
    model, idx = model_of("baseline").double(), tokens(1, 12)
    changed = idx.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % SPEC.vocabulary
    torch.testing.assert_close(model(idx)[:, :7], model(changed)[:, :7], rtol=0, atol=1e-13)
    assert not torch.allclose(model(idx)[:, 7:], model(changed)[:, 7:])


def test_initialisation_is_gpt2s() -> None:
    spec = ModelSpec(layers=8, heads=4, width=256, context=300, vocabulary=500)
    state = model_of(spec=spec).state_dict()
    for name, value in state.items():
        if name.endswith("bias"):
            assert not value.any(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            residual = name.endswith(("attention.out.weight", "mlp.2.weight"))
            std = 0.02 / math.sqrt(16) if residual else 0.02
            # the standard error of a standard deviation over n draws is std / sqrt(2 n); five of them
            assert abs(value.std().item() / std - 1) < 5 / math.sqrt(2 * value.numel()), name


def test_mechanisms_of_one_seed_share_all_but_attention() -> None:
    one, other = model_of("sdpa").state_dict(), model_of("gqa").state_dict()
    shared = {name for name in one if "attention" not in name}
    assert "blocks.1.mlp.2.weight" in shared
    assert all(torch.equal(one[name], other[name]) for name in shared)
    assert not torch.equal(one["tokens.weight"], model_of("sdpa", seed=1).state_dict()["tokens.weight"])


def test_building_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    model_of()
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("mechanism", ["baseline", "sdpa", "gqa"])
@pytest.mark.parametrize("chunks", [(12,), (1,) * 12, (5, 1, 4, 2)])
def test_feeding_a_cache_equals_the_full_pass(mechanism: str, chunks: tuple[int, ...]) -> None:
    model, idx = model_of(mechanism).double().eval(), tokens(3, 12)
    full = model(idx)
    caches = model.new_caches(3)
    fed = 0
    for chunk in chunks:
        last = model.feed(idx[:, fed : fed + chunk], caches)
        fed += chunk
        torch.testing.assert_close(last, full[:, fed - 1], rtol=0, atol=1e-12)
    assert [cache.length for cache in caches] == [12, 12]


def test_greedy_generation_is_the_most_likely_continuation_without_a_cache() -> None:
    model, prompt = model_of().double(), tokens(2, 4)
    expected = prompt
    with torch.no_grad():
        for _ in range(6):
            expected = torch.cat([expected, model(expected)[:, -1].argmax(-1, keepdim=True)], dim=1)
    assert torch.equal(generate(model, prompt, 6, temperature=0), expected)
    assert torch.equal(generate(model, prompt, 6, top_k=1, seed=3), expected)
    assert model.training


def test_generation_is_seeded() -> None:
    model, prompt = model_of(), tokens(2, 4)
    one = generate(model, prompt, 12, seed=1)
    assert torch.equal(one, generate(model, prompt, 12, seed=1))
    assert not torch.equal(one, generate(model, prompt, 12, seed=2))


def test_top_k_draws_only_from_the_k_most_likely() -> None:
    model, prompt = model_of().double(), tokens(1, 4)
    likely = set(model(prompt)[0, -1].topk(3).indices.tolist())
    drawn = {generate(model, prompt, 1, temperature=5.0, top_k=3, seed=s)[0, -1].item() for s in range(60)}
    assert drawn == likely


def test_generation_may_fill_the_context_and_one_more() -> None:
    model = model_of()
    assert generate(model, tokens(1, 4), 21).shape == (1, 25)
    with pytest.raises(UserError, match=r"4 tokens of prompt and 22 more\n.*together at most 25"):
        generate(model, tokens(1, 4), 22)
    with pytest.raises(UserError, match="0 tokens of prompt"):
        generate(model, tokens(1, 0), 2)
    with pytest.raises(UserError, match="temperature -1"):
        generate(model, tokens(1, 4), 2, temperature=-1)


def test_too_long_a_sequence_is_an_error() -> None:
    model = model_of()
    with pytest.raises(UserError, match=r"longer than the context\n  got: 25 tokens\n  wanted: at most 24"):
        model(tokens(1, 25))
    caches = model.new_caches(1)
    model.feed(tokens(1, 24), caches)
    with pytest.raises(UserError, match="got: 25 tokens"):
        model.feed(tokens(1, 1), caches)


def test_matrices_decay_and_vectors_do_not() -> None:
    model = model_of()
    matrices, vectors = decay_groups(model, 0.1)
    names = {id(p): n for n, p in model.named_parameters()}
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert {names[id(p)] for p in vectors["params"]} == {n for n in names.values() if n.endswith("bias") or "norm" in n}
    assert len(matrices["params"]) + len(vectors["params"]) == len(names)
