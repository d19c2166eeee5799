"""The hybrid backward: one pass over resident keys that also stores dS, then dQ = dS K as one gather product.

    c (2 d_k + 2 d_v + 2) + d_k + d_v + 1 <= M,      words = D + (n_k + query touches(c)) (d_k + d_v) + 2 query
    touches(c) + E
        + h E + d_k key touches(r) + n_q d_k + n_k (d_k + d_v),      about 8 n^2 d^2 / M + 1 + min over h of (h + d^2
        / (h M))
S and dP are formed once, the order of sums is fixed, no word of a sum is read back. dS takes E words of scratch;
with panels of g keys, g n of them, and dQ is then read and written once more for every further panel.
Source: this project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattention.iocomplexity.memory.counts import Count, joined
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.parts.gradients import (
    DeltaTiles,
    KeyPassTiles,
    delta_part,
    gather,
    gather_part,
    key_pass,
    key_pass_part,
    key_pass_room,
    least_for_delta,
    make_delta,
    plan_delta,
    plan_key_pass,
)
from wattention.iocomplexity.parts.layout import Started, fill_rows
from wattention.iocomplexity.parts.products import GatherNeeds, GatherTiles, least_for_gather, plan_gather
from wattention.iocomplexity.problem.attention import Problem


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Tiles of the three phases, and the keys of a panel."""

    delta: DeltaTiles
    keys: KeyPassTiles
    gather: GatherTiles
    panel_keys: int

    def as_tiles(self) -> dict[str, int]:
        """The flat form that schedules exchange."""
        return {
            "delta_rows": self.delta.rows,
            "delta_dim": self.delta.dim,
            "keys": self.keys.keys,
            "rows": self.keys.rows,
            "dq_rows": self.gather.length,
            "dq_dim": self.gather.width,
            "panel_keys": self.panel_keys,
        }


def cuts_of(tiles: Mapping[str, int]) -> Cuts:
    """The cuts behind flat tiles."""
    return Cuts(
        delta=DeltaTiles(rows=tiles["delta_rows"], dim=tiles["delta_dim"]),
        keys=KeyPassTiles(keys=tiles["keys"], rows=tiles["rows"]),
        gather=GatherTiles(length=tiles["dq_rows"], width=tiles["dq_dim"]),
        panel_keys=tiles["panel_keys"],
    )


def plan_cuts(problem: Problem, fast_words: int) -> Cuts | None:
    """The best cut of each phase, with scratch for all keys; None when nothing fits."""
    delta, keys = plan_delta(problem, fast_words), plan_key_pass(problem, fast_words)
    needs = GatherNeeds(dim=problem.key_dim)
    tiles = plan_gather(problem, problem.query_blocks, fast_words, needs)
    if delta is None or keys is None or tiles is None:
        return None
    return Cuts(delta=delta, keys=keys, gather=tiles, panel_keys=problem.key_tokens)


def least_words(problem: Problem) -> int:
    """Words of fast memory that the smallest tiles need."""
    needs = GatherNeeds(dim=problem.key_dim)
    return max(least_for_delta(problem), key_pass_room(problem, 1, 1), least_for_gather(problem, needs))


def count(problem: Problem, cuts: Cuts) -> Count:
    """Exact count."""
    panels = problem.key_blocks.cut(cuts.panel_keys)
    by_query = gather_part(
        problem,
        cuts.gather,
        GatherNeeds(dim=problem.key_dim),
        out="queries",
        visits=problem.key_blocks.touches(cuts.panel_keys),
        rounds=len(panels),
    )
    parts = delta_part(problem, cuts.delta), key_pass_part(problem, cuts.keys, "store dS"), by_query
    return joined(*parts, scratch_words=max(_pairs(problem, p) for p in panels) * problem.widths.scratch)


def _pairs(problem: Problem, panel: slice) -> int:
    return problem.pattern.pairs_in(slice(0, problem.rows), panel)


def run_panels(machine: Machine, problem: Problem, cuts: Cuts) -> None:
    """Q, K, V, dO, O, L -> dQ (n_q, d_k), dK (n_k, d_k), dV (n_k, d_v)."""
    panels = problem.key_blocks.cut(cuts.panel_keys)
    make_delta(machine, problem, cuts.delta)
    machine.reserve("dQ", (problem.rows, problem.key_dim), role="inputs" if len(panels) == 1 else "accumulators")
    machine.reserve("dK", (problem.key_tokens, problem.key_dim))
    machine.reserve("dV", (problem.key_tokens, problem.value_dim))
    rows, started = slice(0, problem.rows), Started(problem.rows)
    for panel in panels:
        shape = (problem.rows, panel.stop - panel.start)
        machine.reserve("dS", shape, role="scratch", scratch=_pairs(problem, panel))
        key_pass(machine, problem, cuts.keys, "store dS", panel=panel)
        gather(
            machine,
            problem,
            cuts.gather,
            into="dQ",
            pairs="dS",
            other="K",
            rows=rows,
            keys=panel,
            key_start=panel.start,
            started=started,
        )
        machine.discard("dS")
    fill_rows(machine, started.rest(), dQ=0.0)
