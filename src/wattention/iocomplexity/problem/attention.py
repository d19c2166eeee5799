"""One attention problem, as data movement sees it: how many tokens, how wide, which pairs, how wide a word.

Symbols of the bounds: n_q = ``rows``, n_k = ``key_tokens``, d_k, d_v; q1 / q2 = query rows that see at least one / two
keys; k1 / k2 = keys seen by any row / by a row of q2; E = ``choice_pairs``, the unmasked pairs in rows of q2 (a row
with one key has P = 1 and dS = 0, so its query is never needed).

Grouped-query attention is one problem per key/value head with g = heads / kv_heads times as many query rows; multi-head
attention and the batch are ``copies`` of it, whose words add.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from wattention.core.errors import UserError
from wattention.iocomplexity.problem.cuts import Blocks, PairTile
from wattention.iocomplexity.problem.masks import Ints, Mask, parse_mask
from wattention.iocomplexity.problem.widths import Widths


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Attention of ``query_tokens`` queries over ``key_tokens`` keys, for ``heads`` heads and ``batch`` sequences.

    Args:
        query_tokens: query tokens of one sequence.
        key_tokens: key tokens of one sequence.
        key_dim: features of a query and of a key, d_k.
        value_dim: features of a value, d_v.
        mask: which pairs of one head are computed.
        heads: query heads.
        kv_heads: key/value heads; divides heads.
        batch: sequences.
        widths: words a number takes.
        values_in_keys: values are the first d_v features of the keys (absorbed multi-head latent attention).
        scale: factor of the scores; d_k ** -0.5 when None.

    Raises:
        UserError: a size below 1, heads that do not divide, a mask of another shape, values wider than the keys they
        lie in.
    """

    query_tokens: int
    key_tokens: int
    key_dim: int
    value_dim: int
    mask: Mask
    heads: int = 1
    kv_heads: int = 1
    batch: int = 1
    widths: Widths = field(default_factory=Widths)
    values_in_keys: bool = False
    scale: float | None = None

    def __post_init__(self) -> None:
        for name in ("query_tokens", "key_tokens", "key_dim", "value_dim", "heads", "kv_heads", "batch"):
            if getattr(self, name) < 1:
                raise UserError(
                    f"{name.replace('_', ' ')} of an attention problem", got=getattr(self, name), wanted="at least 1"
                )
        if self.heads % self.kv_heads:
            raise UserError(
                "key/value heads do not divide the query heads",
                got=f"{self.heads} heads, {self.kv_heads} key/value heads",
                wanted="heads that are a multiple of the key/value heads",
            )
        if (self.mask.queries, self.mask.keys) != (self.query_tokens, self.key_tokens):
            raise UserError(
                "the mask does not fit the problem",
                got=f"a mask of {self.mask.queries} queries and {self.mask.keys} keys",
                wanted=f"{self.query_tokens} queries and {self.key_tokens} keys",
            )
        if self.values_in_keys and self.value_dim > self.key_dim:
            raise UserError(
                "values that lie inside the keys cannot be wider than them",
                got=f"value dim {self.value_dim}, key dim {self.key_dim}",
                wanted=f"a value dim of at most {self.key_dim}",
            )

    @cached_property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @cached_property
    def rows(self) -> int:
        """Query rows of one copy, n_q: every query of every head of the group."""
        return self.query_tokens * self.group

    @cached_property
    def copies(self) -> int:
        """Independent copies of the problem; their words add."""
        return self.batch * self.kv_heads

    @cached_property
    def pattern(self) -> Mask:
        """The mask of one copy, with a row for every query row."""
        return self.mask if self.group == 1 else self.mask.repeated(self.group)

    @cached_property
    def score_scale(self) -> float:
        """Factor of the scores."""
        return self.key_dim**-0.5 if self.scale is None else self.scale

    @cached_property
    def pairs(self) -> int:
        """Unmasked pairs of one copy."""
        return self.pattern.pairs

    @cached_property
    def choice_pairs(self) -> int:
        """E: unmasked pairs of one copy in rows with at least two of them."""
        return int(self.row_lengths[self.row_lengths >= 2].sum())

    @cached_property
    def single_key_rows(self) -> int:
        """Rows that see exactly one key."""
        return int(np.count_nonzero(self.row_lengths == 1))

    @cached_property
    def row_lengths(self) -> Ints:
        """Keys that each row sees."""
        return self.pattern.query_degrees

    @cached_property
    def longest_row(self) -> int:
        """The most keys a row sees."""
        return max(1, int(self.row_lengths.max()))

    @cached_property
    def q1(self) -> int:
        """Rows that see a key."""
        return int(np.count_nonzero(self.row_lengths))

    @cached_property
    def q2(self) -> int:
        """Rows that see at least two keys."""
        return int(np.count_nonzero(self.row_lengths >= 2))

    @cached_property
    def k1(self) -> int:
        """Keys seen by any row."""
        return int(self.pattern.keys_seen(np.array([0]), np.array([self.rows]))[0])

    @cached_property
    def k2(self) -> int:
        """Keys seen by a row that sees at least two."""
        return self.pattern.keys_of_rows_with_choice()

    @cached_property
    def query_blocks(self) -> Blocks:
        """Ways to cut the query rows, and the keys each way touches."""
        return Blocks(self.pattern, "queries")

    @cached_property
    def key_blocks(self) -> Blocks:
        """Ways to cut the keys, and the query rows each way touches."""
        return Blocks(self.pattern, "keys")

    def tile(self, rows: slice, keys: slice) -> PairTile:
        """The pairs of the tile ``rows`` x ``keys``, trimmed to the rows and keys that take part."""
        return PairTile.cut(self.pattern, rows, keys)

    def whole_row(self, row: slice, keys: slice | Ints) -> PairTile:
        """Keys of one row, all of them unmasked."""
        width = keys.stop - keys.start if isinstance(keys, slice) else len(keys)
        return PairTile(row, keys, 1, width, width, None)


def attention_problem(
    *,
    tokens: int,
    head_dim: int,
    value_dim: int | None = None,
    key_tokens: int | None = None,
    mask: str | Mask = "dense",
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
    widths: Widths | None = None,
    values_in_keys: bool = False,
) -> Problem:
    """Return a problem the way users state it; unsaid sizes are those of square multi-head attention.

    Raises:
        UserError: as :class:`Problem` and :func:`~wattention.iocomplexity.problem.masks.parse_mask`.
    """
    keys = tokens if key_tokens is None else key_tokens
    return Problem(
        query_tokens=tokens,
        key_tokens=keys,
        key_dim=head_dim,
        value_dim=head_dim if value_dim is None else value_dim,
        mask=parse_mask(mask, tokens, keys) if isinstance(mask, str) else mask,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        batch=batch,
        widths=widths or Widths(),
        values_in_keys=values_in_keys,
    )
