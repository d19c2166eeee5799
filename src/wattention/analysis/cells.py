"""Find the cells of a run that finished."""

from __future__ import annotations

from collections.abc import Iterable

from wattention.analysis.hosts import hostname_of
from wattention.core.records import CellKey, CellKind, CellRecord


def by_block(records: Iterable[CellRecord], kind: CellKind) -> dict[str, dict[int, CellRecord]]:
    """Successful cells of a kind, by mechanism and block; a repeated cell counts once, the first time.

    A block that was begun on one host and finished on another (a node died) is two blocks here, so that no pair mixes
    hosts: the second part gets a number beyond those of the plan.
    """
    ours = [record for record in records if record.key.kind == kind and record.status == "ok"]
    parts: dict[tuple[int, str], int] = {}
    begun: set[int] = set()
    beyond = 1 + max((record.key.block for record in ours), default=0)
    out: dict[str, dict[int, CellRecord]] = {}
    seen: set[CellKey] = set()
    for record in ours:
        if record.key in seen:
            continue
        seen.add(record.key)
        place = (record.key.block, hostname_of(record))
        if place not in parts:
            parts[place] = beyond + len(parts) if record.key.block in begun else record.key.block
            begun.add(record.key.block)
        out.setdefault(record.key.mechanism, {})[parts[place]] = record
    return out
