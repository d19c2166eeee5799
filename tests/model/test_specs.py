"""The specs: presets, overrides, closed forms, and errors that teach."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from wattention.core.errors import UserError
from wattention.core.shapes import AttentionShape
from wattention.core.specs import PRESETS, DataSpec, ModelSpec, TrainingSpec
from wattention.mechanisms.base import MECHANISMS, AttentionModule, Cache, Mechanism, MechanismConfig
from wattention.model.gpt2 import GPT2, parameter_count


class NoMixing(AttentionModule):
    """Only the output projection: its cost is known without a formula of ours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        return self.out(x)


NO_MIXING = Mechanism(
    name="no_mixing",
    title="",
    paper="",
    config=MechanismConfig,
    build=lambda shape, config, dropout: NoMixing(shape.width),
    reference=lambda parameters, x, shape, config: x,
    cost=lambda shape, config, bytes_per_element: pytest.fail("not asked"),
    exact=False,
    subquadratic=True,
)


@pytest.mark.parametrize(
    ("preset", "parameters"),
    # Radford et al., 2019, sizes as published with the weights: 124M, 355M, 774M, 1558M
    [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200)],
)
def test_presets_have_the_published_parameter_counts(preset: str, parameters: int) -> None:
    spec = ModelSpec.preset(preset)
    assert spec.parameters(4 * spec.width**2 + 4 * spec.width) == parameters


SMALL_SPECS = st.builds(
    lambda head_dim, **fields: ModelSpec(width=fields["heads"] * head_dim, context=7, **fields),
    layers=st.integers(1, 3),
    heads=st.integers(1, 3),
    head_dim=st.integers(1, 5),
    vocabulary=st.integers(2, 40),
    mlp_width=st.integers(1, 30),
    bias=st.booleans(),
    tied=st.booleans(),
)


@settings(deadline=None, max_examples=25)
@given(spec=SMALL_SPECS)
def test_parameter_count_is_the_models(spec: ModelSpec) -> None:
    assert parameter_count(GPT2(spec, NO_MIXING)) == spec.parameters(spec.width**2 + spec.width)


@pytest.mark.parametrize("name", ["baseline", "sdpa"])
def test_parameter_count_with_a_mechanisms_own_cost(name: str) -> None:
    spec = ModelSpec.preset("tiny", context=32)
    mechanism = MECHANISMS.load(name)
    shape = AttentionShape(batch=1, tokens=spec.context, width=spec.width, heads=spec.heads)
    cost = mechanism.cost(shape, mechanism.config(), 4)
    assert parameter_count(GPT2(spec, mechanism)) == spec.parameters(cost.parameters)


@pytest.mark.parametrize(("preset", "changes"), [("tiny", {"mlp_width": 100}), ("gpt2", {"layers": 3, "context": 64})])
def test_flop_per_token_is_what_the_counter_counts(preset: str, changes: dict[str, int]) -> None:
    spec = ModelSpec.preset(preset, **changes)
    B, T = 2, 16
    with torch.device("meta"):
        model = GPT2(spec, NO_MIXING)
        idx = torch.zeros(B, T, dtype=torch.long)
    with FlopCounterMode(display=False) as forward:
        loss = model(idx, idx)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    projection = spec.layers * 2 * spec.width**2
    assert forward.get_total_flops() == B * T * (spec.forward_flop_per_token + projection)
    assert backward.get_total_flops() == B * T * (spec.backward_flop_per_token + 2 * projection)


def test_any_field_of_a_preset_can_be_overridden() -> None:
    spec = ModelSpec.preset("gpt2", width=96, layers=2)
    assert (spec.width, spec.layers, spec.heads, spec.mlp_width) == (96, 2, 12, 384)
    assert ModelSpec.preset("gpt2", width=96, mlp_width=100).mlp_width == 100
    assert spec.replace(mlp_width=380).mlp_width == 380
    assert spec.replace(layers=3).replace(layers=2) == spec


@pytest.mark.parametrize("spec", [ModelSpec.preset("tiny"), DataSpec(text="a.txt"), TrainingSpec(clip_norm=None)])
def test_specs_survive_json(spec: ModelSpec | DataSpec | TrainingSpec) -> None:
    assert type(spec)(**json.loads(spec.model_dump_json())) == spec


def test_specs_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        ModelSpec.preset("tiny").layers = 3


def test_unknown_preset_names_near_matches() -> None:
    with pytest.raises(UserError, match="did you mean gpt2") as raised:
        ModelSpec.preset("gtp2")
    assert all(name in str(raised.value) for name in PRESETS)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ModelSpec.preset("tiny", layer=1), r"ModelSpec has no field layer\n.*\n.*\n.*did you mean layers"),
        (lambda: ModelSpec.preset("tiny", layers=0), r"ModelSpec.layers\n  got: 0\n  wanted: .*greater than or equal"),
        (
            lambda: ModelSpec.preset("tiny", width=130),
            r"heads do not divide.*\n.*130, heads 4\n.*\n.*set heads to 5",
        ),
        (lambda: ModelSpec(layers=1), r"ModelSpec needs heads"),
        (lambda: TrainingSpec(precision="float16"), r"TrainingSpec.precision\n  got: 'float16'"),
        (lambda: DataSpec(text="a", tokens="b"), r"two sources of text"),
        (lambda: DataSpec(task="recall", text="a"), r"recall task generates its own"),
    ],
)
def test_wrong_fields_are_errors_that_teach(make: object, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make()
