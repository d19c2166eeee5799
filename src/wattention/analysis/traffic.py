"""Bytes an operator moves across each boundary of a memory hierarchy, and the least any program for it could move.

At each boundary the inner level is fast memory of M words (one holder's: a block's shared memory, the device's L2).

==================  =============================================================  ================================
operator            moved                                                          lower bound
==================  =============================================================  ================================
fused attention     the best schedule of the I/O planner                           the bound of that schedule's class
matrix product      max(operands + results, 2 m n k / (sqrt(M + 1) - 1) + m n)     max(.., 2 m n k / sqrt M - 2 M)
anything else       operands + results, once                                       the same
==================  =============================================================  ================================

Every operator starts and ends outside of every fast level: what a cache keeps from one operator to the next is not
counted. A fused kernel too large for a level (its tiles do not fit) is absent there.
Source: iocomplexity/planning/planner.py; Smith et al. 2017 (arXiv 1702.02017); the schedule of COSMA (arXiv 1908.09606,
5.2.7).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from wattention.core.errors import UserError
from wattention.core.operators import Operator
from wattention.iocomplexity.bounds.matmul import cosma_words, smith_words
from wattention.iocomplexity.planning.planner import best_schedule
from wattention.iocomplexity.problem.attention import Problem, attention_problem

ELEMENT_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


class Traffic(NamedTuple):
    """Bytes of one operator across one boundary."""

    moved_bytes: float
    bound_bytes: float


_NOTHING = Traffic(0.0, 0.0)


@lru_cache(maxsize=65536)
def operator_traffic(
    kind: str, dims: tuple[int, ...], dtype: str, operand_bytes: int, capacity_bytes: int
) -> Traffic | None:
    """Return the traffic of one operator where fast memory has ``capacity_bytes``; None where its tiles do not fit.

    ``operand_bytes`` are those of its operands and results, each once.
    """
    size = ELEMENT_BYTES.get(dtype, 4)
    words = capacity_bytes // size
    if kind == "matmul":
        batch, m, n, k = dims
        moved = max(operand_bytes, batch * size * cosma_words(m * n, k, words))
        return Traffic(moved, max(operand_bytes, batch * size * smith_words(m * n, k, words)))
    if kind in ("attention", "attention-backward"):
        return _attention_traffic(dims, size, words, backward=kind == "attention-backward")
    return Traffic(operand_bytes, operand_bytes)


def traffic_of(op: Operator, capacity_bytes: int) -> Traffic | None:
    """Return the traffic of one call of an operator; see :func:`operator_traffic`."""
    if op.kind == "view":
        return _NOTHING
    if op.kind == "memory":
        return Traffic(op.moved_bytes, op.moved_bytes)
    return operator_traffic(op.kind, op.dims, op.dtype, op.moved_bytes, capacity_bytes)


@lru_cache(maxsize=8)
def _problem(dims: tuple[int, ...]) -> Problem:
    """The problem of an attention operator: all levels and both directions ask for one, with its counts of touches."""
    batch, heads, kv_heads, queries, keys, key_dim, value_dim, window, causal = dims
    mask = f"window:{window}" if window else "causal"
    return attention_problem(
        tokens=queries,
        key_tokens=keys,
        head_dim=key_dim,
        value_dim=value_dim,
        mask=mask if causal and queries == keys else "dense",
        heads=heads,
        kv_heads=kv_heads,
        batch=batch,
    )


def _attention_traffic(dims: tuple[int, ...], size: int, words: int, *, backward: bool) -> Traffic | None:
    try:
        best = best_schedule(_problem(dims), words, direction="backward" if backward else "forward")
    except UserError:
        return None
    bound = best.bound.words if best.bound is not None else 0.0
    return Traffic(float(best.words * size), float(bound * size))
