"""Matching by the MLP's width: within 1 % for all eight mechanisms, and honest where it cannot be."""

import pytest
import torch

from wattention.core.errors import UserError
from wattention.lab.quality.matching import (
    TOLERANCE,
    attention_cost,
    describe_match,
    match_widths,
    train_flop_per_token,
)
from wattention.mechanisms.base import MECHANISMS
from wattention.model.gpt2 import GPT2
from wattention.study.configure import DEFAULTS, build_run_spec


def run(mode, **layer):
    return build_run_spec([DEFAULTS, {"match": mode}, layer], [], threads=1)


@pytest.mark.parametrize("preset", ["tiny", "gpt2", "gpt2-medium", "gpt2-xl"])
@pytest.mark.parametrize("mode", ["params", "flops"])
def test_all_eight_match_within_one_per_cent_at_a_width_that_kernels_like(preset, mode):
    matched = match_widths(run(mode, preset=preset))
    reference = describe_match(matched, "baseline")["value"]
    for choice in matched.mechanisms:
        facts = describe_match(matched, choice.label)
        assert facts["value"] == pytest.approx(reference, rel=TOLERANCE)
        assert facts["mismatch"] == facts["value"] / reference - 1
        assert facts["mlp_width"] == choice.mlp_width
        assert choice.mlp_width % 8 == 0
    assert matched.choice("baseline").mlp_width == matched.model.mlp_width
    assert len({choice.mlp_width for choice in matched.mechanisms}) > 2, "the eight differ before they are matched"


@pytest.mark.parametrize("label", ["baseline", "gqa", "mla", "lsh", "linear"])
def test_the_matched_number_of_parameters_is_that_of_the_model_built(label):
    matched = match_widths(run("params"))
    mechanism = MECHANISMS.load(label)
    with torch.device("meta"):
        model = GPT2(matched.model_of(label), mechanism, mechanism.configure({}), seed=0)
    assert sum(p.numel() for p in model.parameters()) == describe_match(matched, label)["value"]


def test_matched_flops_follow_the_length_of_the_run():
    short, long = (match_widths(run("flops", training={"tokens": tokens})) for tokens in (512, 1024))
    widths = [r.choice("linear").mlp_width for r in (short, long)]
    assert widths[0] < widths[1], "the longer the text, the more products a linear mechanism saves"
    for matched in (short, long):
        cost = attention_cost(matched, "linear")
        flop = train_flop_per_token(
            matched.model_of("linear"),
            cost.forward_flop + cost.backward_flop,
            batch=matched.training.batch,
            tokens=matched.training.tokens,
        )
        assert flop == describe_match(matched, "linear")["value"]


def test_a_finer_width_is_used_only_where_eight_misses():
    small = {"model": {"layers": 2, "heads": 2, "width": 20, "context": 32, "vocabulary": 64}}
    matched = match_widths(run("params", mechanisms=["baseline", "mla"], **small))
    facts = describe_match(matched, "mla")
    assert abs(facts["mismatch"]) <= TOLERANCE
    assert facts["mlp_width"] % 8 != 0


def test_as_named_changes_nothing_and_says_so():
    named = run("named")
    assert match_widths(named) == named
    assert describe_match(named, "gqa") == {"mode": "named", "mlp_width": 512}


def test_matching_a_matched_run_again_changes_nothing():
    matched = match_widths(run("flops"))
    assert match_widths(matched) == matched


def test_an_impossible_match_names_the_nearest():
    tiny_mlp = {"model": {"mlp_width": 8}, "mechanisms": ["gqa", "mla"]}
    with pytest.raises(UserError) as caught:
        match_widths(run("params", **tiny_mlp))
    words = str(caught.value)
    assert "mla cannot be matched to gqa by the width of its MLP" in words
    assert "an MLP 1 wide, it has" in words
    assert "within 1%" in words


def test_a_width_of_ones_own_and_matching_exclude_each_other():
    mechanisms = ["baseline", {"label": "gqa", "source": "gqa", "mlp_width": 100}]
    with pytest.raises(UserError, match="has an MLP width of its own, and matching sets another"):
        match_widths(run("params", mechanisms=mechanisms))
    assert run("named", mechanisms=mechanisms).model_of("gqa").mlp_width == 100
