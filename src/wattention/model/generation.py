"""Generation with a cache: greedy, or drawn with a temperature from the k most likely tokens (Fan et al., 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from wattention.core.errors import UserError
from wattention.model.gpt2 import GPT2


@torch.inference_mode()
def generate(
    model: GPT2, prompt: Tensor, tokens: int, *, temperature: float = 1.0, top_k: int | None = None, seed: int = 0
) -> Tensor:
    """Continue prompts (B, T) by a number of tokens; return prompts and continuations (B, T + tokens).

    The prompt is fed at once, then one token at a time from the cache, in evaluation mode. Temperature 0 is greedy.
    Equal seeds give equal draws on one device.

    Errors: ``UserError`` for an empty prompt, a negative temperature or top-k below 1, and beyond the context.
    """
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise UserError(
            "cannot draw like this",
            got=f"temperature {temperature}, top-k {top_k}",
            wanted="a temperature of 0 (greedy) or more, and top-k of at least 1",
        )
    batch, fed = prompt.shape
    # the last token generated is never fed
    if not 1 <= fed <= fed + tokens - 1 <= model.spec.context:
        raise UserError(
            "cannot continue the prompt",
            got=f"{fed} tokens of prompt and {tokens} more",
            wanted=f"at least 1 of each, together at most {model.spec.context + 1} for this model's context",
            do="shorten one of them",
        )
    generator = torch.Generator(prompt.device).manual_seed(seed)
    was_training = model.training
    model.eval()
    out = [prompt]
    try:
        caches = model.new_caches(batch)
        for _ in range(tokens):
            out.append(_draw(model.feed(out[-1], caches).float(), temperature, top_k, generator))
    finally:
        model.train(was_training)
    return torch.cat(out, dim=1)


def _draw(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator) -> Tensor:
    """Draw one token for each row of logits (B, V); return (B, 1)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)
