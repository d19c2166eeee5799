"""Shapes, with one legend of dimension letters for the whole project.

B batch, T query tokens, S key tokens, H heads, G key/value heads, D head dim, C model dim, R latent rank, W window,
N buckets, L layers, V vocabulary; M words of fast memory and E unmasked pairs in iocomplexity.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattention.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """The shape one attention layer works on: x is (B, T, C), heads have D = C / H features."""

    batch: int
    tokens: int
    width: int
    heads: int

    def __post_init__(self) -> None:
        for name in ("batch", "tokens", "width", "heads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} of an attention layer", got=getattr(self, name), wanted="at least 1")
        if self.width % self.heads:
            raise UserError(
                "heads do not divide the model width",
                got=f"width {self.width}, heads {self.heads}",
                wanted="a width that is a multiple of the heads",
                do=f"set heads to {_nearest_divisor(self.width, self.heads)} or change the width",
            )

    @property
    def head_dim(self) -> int:
        """Features of one head, D."""
        return self.width // self.heads

    @property
    def causal_pairs(self) -> int:
        """Query-key pairs of one head under the causal mask, T (T + 1) / 2."""
        return self.tokens * (self.tokens + 1) // 2


def _nearest_divisor(number: int, near: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - near), d))
