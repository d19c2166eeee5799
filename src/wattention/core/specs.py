"""What a run is asked to do: the model, the data, the training. Frozen, and an unknown key is an error.

Closed forms live beside the fields they follow from. For a GPT-2 of L layers, width C, MLP width M, context T and
vocabulary V, outside of its attention layers::

    parameters          V C + T C + L (4 C + 2 C M + M + C) + 2 C       (tied head, biases)
    forward FLOP/token  L 4 C M + 2 C V                                 (a multiply-add is 2)
    backward FLOP/token twice that: one product for the inputs' gradient, one for the weights'
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wattention.core.errors import UserError, unknown_name
from wattention.core.shapes import AttentionShape

IGNORE = -100
"""Target of a position that has no loss."""


class Spec(BaseModel):
    """Base of the specs: frozen, no unknown keys, and bad values are a ``UserError`` that names the field."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise _user_error(type(self), error) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked like a new one."""
        return type(self)(**{**self.model_dump(), **changes})


def _user_error(spec: type[BaseModel], error: ValidationError) -> UserError:
    """Say the first thing wrong with the fields of a spec."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return cause
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, spec.model_fields, n=3, cutoff=0.5)
        do = f"did you mean {' or '.join(near)}?" if near else None
        return UserError(f"{spec.__name__} has no field {name}", got=name, wanted=", ".join(spec.model_fields), do=do)
    if first["type"] == "missing":
        return UserError(f"{spec.__name__} needs {name}", wanted=", ".join(spec.model_fields))
    return UserError(f"{spec.__name__}.{name}", got=repr(first["input"]), wanted=first["msg"])


class ModelSpec(Spec):
    """A GPT-2: everything but the attention mechanism."""

    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    width: int = Field(ge=1)
    context: int = Field(ge=1)
    """The longest sequence, and the number of learned positions."""
    vocabulary: int = Field(ge=2)
    mlp_width: int = Field(ge=1)
    """Hidden features of the MLP; 4 x width unless given."""
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Default 0: any dropout drops the CPU's fused attention to the slow kernel that forms T x T."""
    bias: bool = True
    """Biases in layer norms and MLP; the attention layers follow their own papers."""
    tied: bool = True
    """The output head shares its weights with the token embedding, as in GPT-2."""

    @model_validator(mode="before")
    @classmethod
    def _default_mlp(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and isinstance(fields.get("width"), int):
            return {"mlp_width": 4 * fields["width"], **fields}
        return fields

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        AttentionShape(batch=1, tokens=self.context, width=self.width, heads=self.heads)
        return self

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """Return a named size with any field overridden; ``mlp_width`` follows a changed ``width``."""
        if name not in PRESETS:
            raise unknown_name("preset", name, PRESETS)
        return cls(**{**PRESETS[name], **changes})

    def parameters(self, attention_parameters: int) -> int:
        """Count parameters, given those of ONE attention layer; the tied head is counted once."""
        C, M, bias = self.width, self.mlp_width, int(self.bias)
        norm = C * (1 + bias)
        block = 2 * norm + 2 * C * M + bias * (M + C) + attention_parameters
        embeddings = (self.vocabulary * (1 if self.tied else 2) + self.context) * C
        return embeddings + self.layers * block + norm

    @property
    def forward_flop_per_token(self) -> int:
        """FLOPs of the forward pass outside of attention: the MLPs and the output head."""
        return self.layers * 4 * self.width * self.mlp_width + 2 * self.width * self.vocabulary

    @property
    def backward_flop_per_token(self) -> int:
        """FLOPs of the backward pass outside of attention."""
        return 2 * self.forward_flop_per_token


PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"layers": 2, "heads": 4, "width": 128, "context": 1024, "vocabulary": 256},
    "gpt2": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257},
    "gpt2-medium": {"layers": 24, "heads": 16, "width": 1024, "context": 1024, "vocabulary": 50257},
    "gpt2-large": {"layers": 36, "heads": 20, "width": 1280, "context": 1024, "vocabulary": 50257},
    "gpt2-xl": {"layers": 48, "heads": 25, "width": 1600, "context": 1024, "vocabulary": 50257},
}
"""``tiny`` is sized for a two-core CPU and byte tokens; the rest are the four sizes of Radford et al., 2019."""


class DataSpec(Spec):
    """Where the tokens come from, and what is held out of training."""

    task: Literal["text", "recall"] = "text"
    """``text``: predict the next token; ``recall``: multi-query associative recall, generated from ``seed``."""
    text: Path | None = None
    """A file or folder to read; without it, and without ``tokens``, the Python standard library's own source."""
    tokens: Path | None = None
    """A file of uint16 token ids (nanoGPT's train.bin), with val.bin beside it or a tail held out."""
    tokenizer: Literal["bytes", "bpe"] = "bytes"
    """``bpe`` is trained on the spot, on the training part, to the model's vocabulary."""
    max_bytes: int = Field(default=32 * 2**20, ge=1)
    """Most bytes of text to read, documents in sorted order."""
    heldout_fraction: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Share of the text's bytes held out, whole documents."""
    heldout_tokens: int = Field(default=16384, ge=1)
    """Tokens that one evaluation covers, rounded down to whole batches; fewer when less is held out."""
    recall_pairs: int = Field(default=16, ge=1)
    """Key-value pairs of one recall sequence; each key is asked for once."""
    seed: int = Field(default=0, ge=0)
    """Seed of the generated recall sequences."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.text is not None and self.tokens is not None:
            raise UserError(
                "two sources of text",
                got=f"text {self.text} and tokens {self.tokens}",
                wanted="one of them",
                do="leave one out",
            )
        if self.task == "recall" and (self.text or self.tokens):
            raise UserError(
                "the recall task generates its own sequences",
                got=f"task recall with {self.text or self.tokens}",
                wanted="task recall alone, or a text",
                do="leave out the text, or the task",
            )
        return self


class TrainingSpec(Spec):
    """How to train: AdamW, linear warm-up, cosine decay, clipping (Radford et al., 2019; Brown et al., 2020, B)."""

    steps: int = Field(default=100, ge=1)
    """Optimiser steps, and the length of the cosine."""
    batch: int = Field(default=2, ge=1)
    """Sequences of one forward pass."""
    accumulation: int = Field(default=1, ge=1)
    """Forward passes per optimiser step."""
    tokens: int | None = Field(default=None, ge=1)
    """Length of the training sequences; the model's context unless given."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    final_learning_rate_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    warmup_steps: int = Field(default=10, ge=0)
    weight_decay: float = Field(default=0.1, ge=0.0)
    """Applied to matrices only: not to biases, nor to the gains of norms."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    clip_norm: float | None = Field(default=1.0, gt=0.0)
    """Largest norm of the gradient; None does not clip."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """``bfloat16`` computes under autocast; parameters and optimiser stay float32."""
    compile: bool = False
    init_seed: int = Field(default=0, ge=0)
    """Seed of the initial parameters, and of dropout."""
    order_seed: int = Field(default=0, ge=0)
    """Seed of the batches: the same for every mechanism of a block."""
