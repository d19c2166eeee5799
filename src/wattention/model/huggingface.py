"""Published GPT-2 weights: a Hugging Face folder with ``config.json`` and safetensors, into a model of ours.

The names differ, and Hugging Face stores the matrices of linear layers as (in, out) where torch has (out, in)::

    wte, wpe, ln_f             tokens, positions, norm
    h.L.ln_1, ln_2             blocks.L.norm1, norm2
    h.L.attn.c_attn, c_proj    blocks.L.attention.qkv, out       transposed
    h.L.mlp.c_fc, c_proj       blocks.L.mlp.0, mlp.2             transposed

Files may carry the prefix ``transformer.``, the causal mask (``attn.bias``, ``attn.masked_bias``) and a copy of the
tied head; nothing else may be there, and nothing may be missing. Dropout of the config is not taken over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wattention.core.errors import UserError
from wattention.core.specs import ModelSpec
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.model.gpt2 import GPT2

LAYER = {
    "ln_1": "norm1",
    "ln_2": "norm2",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.out",
    "mlp.c_fc": "mlp.0",
    "mlp.c_proj": "mlp.2",
}
MUST_BE: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}
"""Fields of ``config.json`` whose other values are another model; each may be missing but ``model_type``."""


def load_huggingface(folder: Path, mechanism: Mechanism, config: MechanismConfig | None = None) -> GPT2:
    """Load a GPT-2 with its weights into the attention layers of a mechanism, in float32.

    The mechanism must have GPT-2's own projections (one ``qkv`` and one ``out``, as ``baseline``, ``sdpa`` and
    ``flash`` have).

    Errors: ``UserError`` for a folder that is not a GPT-2, tensors missing, unknown or of another shape, and a
    mechanism whose parameters are not GPT-2's.
    """
    spec = read_spec(folder)
    model = GPT2(spec, mechanism, config)
    parameters = dict(model.named_parameters())
    _check_mechanism(parameters, mechanism.name, spec.width)
    left = set(parameters)
    for theirs, tensor in _tensors(folder):
        name = _our_name(theirs)
        if theirs.endswith("lm_head.weight"):
            if spec.tied:
                continue
            name = "head.weight"
        if name is None or name not in parameters:
            raise UserError("the file has a tensor GPT-2 has not", got=theirs, wanted="the tensors of GPT-2")
        if re.search(r"\.c_\w+\.weight$", theirs):
            tensor = tensor.t()  # noqa: PLW2901
        if tensor.shape != parameters[name].shape:
            raise UserError(
                f"the tensor {theirs} has the wrong shape",
                got=tuple(tensor.shape),
                wanted=f"{tuple(parameters[name].shape)}, by config.json",
            )
        with torch.no_grad():
            parameters[name].copy_(tensor)
        left.discard(name)
    if left:
        raise UserError("tensors of GPT-2 are missing", got=f"no {', '.join(sorted(left)[:4])}", wanted="all of them")
    return model


def read_spec(folder: Path) -> ModelSpec:
    """Read the sizes of a GPT-2 from its ``config.json``."""
    path = folder / "config.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            "cannot read the model's config", got=f"{path}: {error}", wanted="a Hugging Face GPT-2 folder"
        ) from None
    for name, allowed in MUST_BE.items():
        value = fields.get(name, None if name == "model_type" else allowed[0])
        if value not in allowed:
            raise UserError(
                "the model is not a plain GPT-2",
                got=f"{name} = {value}",
                wanted=" or ".join(str(a) for a in allowed),
            )
    try:
        return ModelSpec(
            layers=fields["n_layer"],
            heads=fields["n_head"],
            width=fields["n_embd"],
            context=fields["n_positions"],
            vocabulary=fields["vocab_size"],
            mlp_width=fields.get("n_inner") or 4 * fields["n_embd"],
            tied=fields.get("tie_word_embeddings", True),
        )
    except KeyError as error:
        raise UserError("the model's config is not whole", got=f"no {error}", wanted="GPT-2's sizes") from None


def _our_name(theirs: str) -> str | None:
    """Return our name of a tensor, or None when it has none."""
    name = theirs.removeprefix("transformer.")
    whole = {"wte.weight": "tokens.weight", "wpe.weight": "positions.weight"}
    if name in whole:
        return whole[name]
    if name.startswith("ln_f."):
        return name.replace("ln_f", "norm", 1)
    match = re.fullmatch(r"h\.(\d+)\.(.+)\.(weight|bias)", name)
    if match and match[2] in LAYER:
        return f"blocks.{match[1]}.{LAYER[match[2]]}.{match[3]}"
    return None


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a folder's safetensors files one by one, without the masks."""
    from safetensors import SafetensorError, safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError("the model has no weights", got=folder, wanted="*.safetensors beside config.json")
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - the file is not a dict
                    if not re.search(r"\.attn\.(masked_)?bias$", name):
                        yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise UserError("cannot read the weights", got=f"{path}: {error}", wanted="a safetensors file") from None


def _check_mechanism(parameters: dict[str, Any], mechanism: str, width: int) -> None:
    prefix = "blocks.0.attention."
    shapes = {n.removeprefix(prefix): tuple(p.shape) for n, p in parameters.items() if n.startswith(prefix)}
    wanted = {
        "qkv.weight": (3 * width, width),
        "qkv.bias": (3 * width,),
        "out.weight": (width, width),
        "out.bias": (width,),
    }
    if shapes != wanted:
        raise UserError(
            f"GPT-2's weights do not fit the mechanism {mechanism}",
            got=", ".join(f"{n} {s}" for n, s in shapes.items()),
            wanted=", ".join(f"{n} {s}" for n, s in wanted.items()),
            do="load them into baseline, sdpa or flash",
        )
