"""Published weights: the logits of transformers' GPT-2, and errors for what is not a GPT-2."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from wattention.core.errors import UserError
from wattention.mechanisms.base import MECHANISMS
from wattention.model.huggingface import load_huggingface, read_spec

SIZES = {"n_layer": 2, "n_head": 3, "n_embd": 24, "n_positions": 20, "vocab_size": 37}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """A folder that transformers wrote, inputs, and its logits in float64."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, attn_implementation="eager"))
    for parameter in theirs.parameters():  # away from the symmetric start: biases and gains count
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    folder = tmp_path_factory.mktemp("published")
    theirs.save_pretrained(folder)
    idx = torch.randint(37, (2, 20))
    with torch.no_grad():
        return folder, idx, theirs.double().eval()(idx).logits


@pytest.fixture
def copy(published: tuple[Path, torch.Tensor, torch.Tensor], tmp_path: Path) -> Path:
    """A copy of the folder to spoil."""
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((published[0] / file).read_bytes())
    return tmp_path


@pytest.mark.parametrize("mechanism", ["baseline", "sdpa", "flash"])
def test_logits_are_those_of_transformers(mechanism: str, published: tuple[Path, torch.Tensor, torch.Tensor]) -> None:
    folder, idx, logits = published
    model = load_huggingface(folder, MECHANISMS.load(mechanism)).double()
    torch.testing.assert_close(model(idx), logits, rtol=0, atol=1e-10)


def test_the_published_files_names_load_too(copy: Path, published: tuple[Path, torch.Tensor, torch.Tensor]) -> None:
    weights = load_file(copy / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 20, 20)
    bare["lm_head.weight"] = bare["wte.weight"].clone()
    save_file(bare, copy / "model.safetensors")
    model = load_huggingface(copy, MECHANISMS.load("sdpa")).double()
    torch.testing.assert_close(model(published[1]), published[2], rtol=0, atol=1e-10)


def test_an_untied_head_is_loaded(copy: Path) -> None:
    change_config(copy, tie_word_embeddings=False)
    head = torch.randn(37, 24)
    spoil(copy, {"lm_head.weight": head})
    model = load_huggingface(copy, MECHANISMS.load("sdpa"))
    assert model.head is not None
    assert torch.equal(model.head.weight, head)


def change_config(folder: Path, **fields: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def spoil(folder: Path, change: dict[str, torch.Tensor | None]) -> None:
    weights = {**load_file(folder / "model.safetensors"), **change}
    save_file({n: t for n, t in weights.items() if t is not None}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"transformer.h.1.ln_2.bias": None}, "missing\n  got: no blocks.1.norm2.bias"),
        ({"transformer.h.2.ln_2.bias": torch.ones(24)}, "a tensor GPT-2 has not\n  got: transformer.h.2.ln_2.bias"),
        ({"extra": torch.ones(1)}, "a tensor GPT-2 has not\n  got: extra"),
        (
            {"transformer.h.0.mlp.c_fc.weight": torch.ones(96, 24)},
            r"c_fc.weight has the wrong shape\n  got: \(24, 96\)\n  wanted: \(96, 24\)",
        ),
    ],
)
def test_wrong_tensors_are_errors(copy: Path, change: dict[str, torch.Tensor | None], says: str) -> None:
    spoil(copy, change)
    with pytest.raises(UserError, match=says):
        load_huggingface(copy, MECHANISMS.load("sdpa"))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"activation_function": "relu"}, "not a plain GPT-2\n  got: activation_function = relu\n  wanted: gelu_new"),
        ({"model_type": "llama"}, "got: model_type = llama"),
        ({"n_head": 5}, "heads do not divide"),
    ],
)
def test_other_models_are_errors(copy: Path, fields: dict[str, object], says: str) -> None:
    change_config(copy, **fields)
    with pytest.raises(UserError, match=says):
        read_spec(copy)


def test_a_mechanism_with_other_parameters_is_an_error(copy: Path) -> None:
    with pytest.raises(UserError, match="do not fit the mechanism gqa"):
        load_huggingface(copy, MECHANISMS.load("gqa"))


def test_a_folder_without_a_model_is_an_error(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(UserError, match="cannot read the model's config"):
        load_huggingface(tmp_path / "nothing", MECHANISMS.load("sdpa"))
    (copy / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(UserError, match="cannot read the weights"):
        load_huggingface(copy, MECHANISMS.load("sdpa"))
