"""The body of the one-pass backward: one order of work, with the sums of dQ held in slow memory in one of two ways.

``read-write``: dQ is read and written each time a block of keys passes; ``remote``: slow memory does the sum itself, so
no word of dQ is ever read. Source: Dao 2023, FlashAttention-2, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from wattention.iocomplexity.memory.counts import Count, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    KeyPassTiles,
    delta_part,
    key_pass,
    key_pass_part,
    key_pass_room,
    least_for_delta,
    make_delta,
    plan_delta,
    plan_key_pass,
)
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.problem.attention import Problem

SumsOfQueries = Literal["read-write", "remote"]


def least_words(problem: Problem) -> int:
    """Words of fast memory that one key and one row at a time need."""
    return max(least_for_delta(problem), key_pass_room(problem, 1, 1))


def plan_blocks(problem: Problem, fast_words: int) -> Mapping[str, int] | None:
    """The largest useful block of keys, or None when nothing fits."""
    delta, keys = plan_delta(problem, fast_words), plan_key_pass(problem, fast_words)
    if delta is None or keys is None:
        return None
    return {"delta_rows": delta.rows, "delta_dim": delta.dim, "keys": keys.keys, "rows": keys.rows}


def count(problem: Problem, tiles: Mapping[str, int], sums: SumsOfQueries) -> Count:
    """Exact count."""
    delta, keys = _cuts(tiles)
    return joined(delta_part(problem, delta), key_pass_part(problem, keys, sums))


def run_blocks(machine: Machine, problem: Problem, tiles: Mapping[str, int], sums: SumsOfQueries) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    delta, keys = _cuts(tiles)
    make_delta(machine, problem, delta)
    machine.reserve("dQ", (problem.rows, problem.key_dim), role="accumulators")
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    started = Started(problem.rows)
    key_pass(machine, problem, keys, sums, started=started)
    fill_rows(machine, started.rest(), dQ=0.0)


def _cuts(tiles: Mapping[str, int]) -> tuple[DeltaTiles, KeyPassTiles]:
    return (
        DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]),
        KeyPassTiles(keys=tiles["keys"], rows=tiles["rows"]),
    )
