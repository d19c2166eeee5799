"""What one call of a torch operator does: its kind, its sizes, its floating-point operations, the bytes it touches.

Products count 2 m n k. A fused attention kernel multiplies the pairs of the tiles it visits: two products forward,
five backward (Dao 2023, arXiv 2307.08691, algorithm 2). CUDA's tiles are smaller and differ from kernel to kernel:
there the unmasked pairs count, as in the published rates of these kernels. Everything else counts by the bytes of its
operands and results, each once; a tensor that is expanded is read where it lies, and lookups read only the rows they
name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from wattention.core.operators import Kind
from wattention.lab.traces.described import Described, described, descriptions_in
from wattention.mechanisms.costs import tiled_causal_pairs
from wattention.mechanisms.kernels.window import band_pairs

_VIEWS = frozenset({"_unsafe_view", "_reshape_alias", "lift_fresh", "detach_", "set_", "as_strided_"})
_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_WRITTEN_ONLY = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_"})
_LOOKUPS = frozenset({"embedding", "index_select", "index", "gather"})
"""Operators that read as many bytes of their source as they write."""
_SCATTERS = frozenset({"scatter_", "scatter_add_", "scatter_add", "index_put_", "_index_put_impl_", "index_add_"})
"""In-place operators that touch as many bytes of their target as they are given."""
_PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
"""Position of the two factors."""
_ATTENTION = "_scaled_dot_product_"
_FLASH = "_flash_attention_"
"""torch's operator for CUDA's flash kernel, which knows bands; its tensors are (B, T, H, D)."""


class OperatorFacts(NamedTuple):
    """One call, without where in the model it happened."""

    name: str
    kind: Kind
    dtype: str
    dims: tuple[int, ...]
    flop: int
    read_bytes: int
    written_bytes: int


def facts_of_tensors(func: Any, args: Any, kwargs: Any, out: Any, *, target: str) -> OperatorFacts:
    """Return the facts of a call from its tensors; see :func:`operator_facts`."""
    return operator_facts(func, described(args), described(kwargs), described(out), target=target)


def operator_facts(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, *, target: str
) -> OperatorFacts:
    """Return the facts of a call.

    Args:
        func: torch's overload.
        args, kwargs, out: what it was given and returned, with descriptions in place of tensors.
        target: kind of device it is meant for; tiles of fused kernels differ.
    """
    signature = _signature(func)
    name = signature.name
    tensors = tuple(descriptions_in((*args, *kwargs.values())))
    results = tuple(descriptions_in(out))
    dtype = _dtype_name((*tensors, *results))
    if signature.is_view:
        return OperatorFacts(name, "view", dtype, (), 0, 0, 0)
    read, written = _touched(signature, args, kwargs, results)
    if name in _PRODUCTS:
        first, second = (args[place] for place in _PRODUCTS[name])
        batch = first.shape[0] if len(first.shape) == 3 else 1
        m, k, n = first.shape[-2], first.shape[-1], second.shape[-1]
        return OperatorFacts(name, "matmul", dtype, (batch, m, n, k), 2 * batch * m * n * k, read, written)
    if name.startswith((_ATTENTION, _FLASH)) and name != "_scaled_dot_product_attention_math":
        return _attention_facts(func, name, dtype, args, kwargs, (read, written), target)
    largest = max((*tensors, *results), key=lambda t: t.numel, default=None)
    return OperatorFacts(name, "memory", dtype, largest.shape if largest else (), 0, read, written)


class _Signature(NamedTuple):
    """What torch's schema says of an overload; asking it takes longer than the rest."""

    name: str
    is_view: bool
    arguments: tuple[tuple[str, bool, bool], ...]
    """Of each: its name, whether it is given by name alone, whether it is written."""


@cache
def _signature(func: Any) -> _Signature:
    name = func._schema.name.removeprefix("aten::").removesuffix("_out")
    arguments = func._schema.arguments
    return _Signature(
        name,
        func.is_view or name in _VIEWS or name in _ALLOCATIONS,
        tuple((a.name, a.kwarg_only, a.alias_info is not None and a.alias_info.is_write) for a in arguments),
    )


@cache
def _dtype_word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype_name(tensors: tuple[Described, ...]) -> str:
    """Name the dtype of the first floating tensor, or of the first one."""
    floating = next((t for t in tensors if t.dtype.is_floating_point), None)
    chosen = floating if floating is not None else next(iter(tensors), None)
    return "none" if chosen is None else _dtype_word(chosen.dtype)


def _touched(
    signature: _Signature, args: Sequence[Any], kwargs: Mapping[str, Any], results: tuple[Described, ...]
) -> tuple[int, int]:
    """Bytes read and written."""
    name = signature.name
    read: list[Described] = []
    mutated: list[Described] = []
    for place, (argument, by_name, writes) in enumerate(signature.arguments):
        if argument in kwargs:
            value = kwargs[argument]
        elif place < len(args) and not by_name:
            value = args[place]
        else:
            continue
        found = list(descriptions_in(value))
        if writes:
            mutated += found
        if not writes or not (by_name or name in _WRITTEN_ONLY):
            read += found
    if name in _LOOKUPS:
        gathered = _bytes(results)
        return gathered + _bytes(read[1:]), gathered
    if name in _SCATTERS:
        given = _bytes(read[1:])
        return 2 * given, given
    return _bytes(read), _bytes(mutated or results)


def _bytes(tensors: Sequence[Described]) -> int:
    return sum([tensor.distinct_bytes for tensor in tensors])


def _attention_facts(
    func: Any,
    name: str,
    dtype: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    touched: tuple[int, int],
    target: str,
) -> OperatorFacts:
    named = {a.name: kwargs.get(a.name, args[i] if i < len(args) else a.default_value)
             for i, a in enumerate(func._schema.arguments)}  # fmt: skip
    q, k, v = named["query"], named["key"], named["value"]
    if name.startswith(_FLASH):
        q, k, v = (x.transposed(1, 2) for x in (q, k, v))
    batch, heads, queries, key_dim = q.shape
    kv_heads, keys, value_dim = k.shape[1], k.shape[2], v.shape[3]
    causal, before = bool(named["is_causal"]), named.get("window_size_left")
    window = 0 if before is None else min(before + 1, keys)
    if window:
        pairs = band_pairs(queries, window)
    elif not causal:
        pairs = queries * keys
    elif target == "cpu":
        pairs = tiled_causal_pairs(queries, keys)
    else:
        # CUDA's flash kernel aligns a mask that is not square to the lower right: all queries see the first keys
        seen_by_all = max(0, keys - queries) if name.startswith("_scaled_dot_product_flash_attention") else 0
        pairs = seen_by_all * queries + sum_of_causal_pairs(queries, keys - seen_by_all)
    backward = name.endswith("_backward")
    widths = 3 * key_dim + 2 * value_dim if backward else key_dim + value_dim
    return OperatorFacts(
        name=name,
        kind="attention-backward" if backward else "attention",
        dtype=dtype,
        dims=(batch, heads, kv_heads, queries, keys, key_dim, value_dim, window, int(causal)),
        flop=2 * batch * heads * pairs * widths,
        read_bytes=touched[0],
        written_bytes=touched[1],
    )


def sum_of_causal_pairs(queries: int, keys: int) -> int:
    """Unmasked pairs of one head when query t sees keys up to t."""
    short = min(queries, keys)
    return short * (short + 1) // 2 + (queries - short) * keys


def dtype_bytes(name: str) -> int:
    """Bytes of one element of a dtype by its name."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype.itemsize
