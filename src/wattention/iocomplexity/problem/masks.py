"""The masks by name: dense, causal, window, Longformer, BigBird, hash buckets, and arrays from files.

What a mask is, and which questions it answers, stands in :mod:`wattention.iocomplexity.problem.mask_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wattention.core.errors import UserError, unknown_name
from wattention.iocomplexity.problem.mask_kinds import Band, Bools, CellMask, Ints, Mask, RepeatedQueries

__all__ = [
    "Band",
    "Bools",
    "CellMask",
    "Ints",
    "Mask",
    "RepeatedQueries",
    "causal",
    "dense",
    "from_array",
    "global_window_random",
    "parse_mask",
    "same_bucket",
    "window",
]


def dense(queries: int, keys: int) -> Band:
    """Every query sees every key."""
    return Band("dense", queries, keys, left=queries + keys, right=queries + keys)


def causal(queries: int, keys: int) -> Band:
    """A query sees the keys up to its own position; the last query is aligned with the last key."""
    return Band("causal", queries, keys, left=queries + keys, right=0)


def window(queries: int, keys: int, width: int) -> Band:
    """A query sees ``width`` keys: its own position and those before it."""
    if width < 1:
        raise UserError("width of a window mask", got=width, wanted="at least 1 key", do="write window:256")
    return Band(f"window:{width}", queries, keys, left=width - 1, right=0)


def global_window_random(
    queries: int,
    keys: int,
    *,
    block: int,
    global_blocks: int,
    window_blocks: int,
    random_blocks: int,
    seed: int = 0,
    name: str | None = None,
) -> CellMask:
    """Global rows and columns, a two-sided window, and random cells per row, in blocks of ``block`` tokens.

    Source: Longformer (Beltagy et al. 2020, section 3.1: window and global); BigBird (Zaheer et al. 2020, section 2).
    """
    for what, value, least in (
        ("block size", block, 1),
        ("global blocks", global_blocks, 0),
        ("window blocks", window_blocks, 0),
        ("random blocks", random_blocks, 0),
    ):
        if value < least:
            raise UserError(f"{what} of a mask", got=value, wanted=f"at least {least}")
    rows, columns = -(-queries // block), -(-keys // block)
    cells = np.zeros((rows, columns), np.bool_)
    for i, row in enumerate(cells if window_blocks else (), start=columns - rows):
        row[max(0, i - window_blocks // 2) : max(0, i + window_blocks // 2 + 1)] = True
    cells[:, :global_blocks] = True
    cells[:global_blocks, :] = True
    draw = np.random.default_rng(seed)
    for row in cells if random_blocks else ():
        free = np.flatnonzero(~row)
        row[draw.choice(free, size=min(random_blocks, len(free)), replace=False, shuffle=False)] = True
    return CellMask(name or f"global+window+random in blocks of {block}", queries, keys, cells, cell=block)


def same_bucket(buckets: NDArray[Any], *, is_causal: bool = False, name: str = "buckets") -> CellMask:
    """Tokens see the tokens of their own bucket; with several rounds of hashing, of their bucket in any round.

    Args:
        buckets: (tokens,) or (rounds, tokens), bucket numbers.
        is_causal: whether later keys stay hidden.
        name: what messages call the mask.
    """
    rounds = np.atleast_2d(buckets)
    if rounds.ndim != 2:
        raise UserError("bucket array", got=f"shape {buckets.shape}", wanted="(tokens,) or (rounds, tokens)")
    cells = np.zeros((rounds.shape[1], rounds.shape[1]), np.bool_)
    for numbers in rounds:
        cells |= numbers[:, None] == numbers[None, :]
    if is_causal:
        cells = np.tril(cells)
    return CellMask(name, *cells.shape, cells)


def from_array(array: NDArray[Any], queries: int, keys: int, *, name: str = "array") -> CellMask:
    """A mask from a boolean matrix: (queries, keys), or a block pattern of (queries / b, keys / b) cells."""
    if array.ndim != 2 or 0 in array.shape:
        raise UserError("a mask array", got=f"shape {array.shape}", wanted="a matrix of queries by keys")
    cell = max(1, -(-queries // array.shape[0]))
    if array.shape != (-(-queries // cell), -(-keys // cell)):
        raise UserError(
            "the mask does not fit the problem",
            got=f"a mask of shape {array.shape[0]} x {array.shape[1]}",
            wanted=f"{queries} x {keys}, or one entry for each block of pairs",
            do="save one row a query and one column a key, or one entry a square block",
        )
    return CellMask(name, queries, keys, np.asarray(array, dtype=np.bool_), cell=cell)


def parse_mask(text: str, queries: int, keys: int) -> Mask:
    """Return the mask a user names.

    Args:
        text: ``dense``, ``causal``, ``window:256``, ``longformer:window=256,global=16``,
            ``bigbird:block=64,global=2,window=3,random=3,seed=0``, ``buckets:file.npy``, or ``file.npy``.
        queries: query tokens.
        keys: key tokens.

    Raises:
        UserError: unknown name, unreadable file, wrong shape, or a bad number.
    """
    kind, _, options = text.partition(":")
    if text.endswith(".npy"):
        path = options if kind == "buckets" else text
        array = _load(path)
        if kind == "buckets" or array.ndim == 1:
            return _fits(same_bucket(array, name=text), queries, keys)
        return from_array(array, queries, keys, name=text)
    if kind not in _NAMED:
        raise unknown_name("mask", text, [*_NAMED, "file.npy", "buckets:file.npy"])
    return _NAMED[kind](text, options, queries, keys)


def _named_window(text: str, options: str, queries: int, keys: int) -> Mask:
    return window(queries, keys, _whole_number(text, options))


def _without_options(make: Callable[[int, int], Mask]) -> Callable[[str, str, int, int], Mask]:
    def parse(text: str, options: str, queries: int, keys: int) -> Mask:
        if options:
            raise UserError(f"the mask {text.partition(':')[0]} takes no options", got=text)
        return make(queries, keys)

    return parse


def _named_longformer(text: str, options: str, queries: int, keys: int) -> Mask:
    given = _options(text, options, {"window": 512, "global": 1})
    return global_window_random(
        queries, keys, block=1, global_blocks=given["global"], window_blocks=given["window"], random_blocks=0, name=text
    )


def _named_bigbird(text: str, options: str, queries: int, keys: int) -> Mask:
    given = _options(text, options, {"block": 64, "global": 2, "window": 3, "random": 3, "seed": 0})
    return global_window_random(
        queries,
        keys,
        block=given["block"],
        global_blocks=given["global"],
        window_blocks=given["window"],
        random_blocks=given["random"],
        seed=given["seed"],
        name=text,
    )


_NAMED: dict[str, Callable[[str, str, int, int], Mask]] = {
    "dense": _without_options(dense),
    "causal": _without_options(causal),
    "window": _named_window,
    "longformer": _named_longformer,
    "bigbird": _named_bigbird,
}


def _options(text: str, options: str, defaults: dict[str, int]) -> dict[str, int]:
    given = dict(defaults)
    for part in filter(None, options.split(",")):
        name, _, value = part.partition("=")
        if name not in defaults:
            raise unknown_name(f"option of the mask {text}", name, defaults)
        given[name] = _whole_number(text, value)
    return given


def _whole_number(text: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise UserError("a mask needs a whole number", got=text, wanted="e.g. window:256") from None


def _load(path: str) -> NDArray[Any]:
    if not Path(path).is_file():
        raise UserError("cannot read the mask file", got=path, wanted="an existing .npy file")
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except ValueError as error:
        raise UserError(
            "cannot read the mask file", got=f"{path} ({error})", wanted="an array saved by numpy.save"
        ) from None


def _fits(mask: Mask, queries: int, keys: int) -> Mask:
    if (mask.queries, mask.keys) != (queries, keys):
        raise UserError(
            "the mask does not fit the problem",
            got=f"{mask.queries} x {mask.keys} pairs from {mask.name}",
            wanted=f"{queries} x {keys} pairs",
        )
    return mask
