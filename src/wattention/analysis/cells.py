"""Find the cells of a run that finished."""

from __future__ import annotations

from collections.abc import Iterable

from wattention.core.records import CellKind, CellRecord


def by_block(records: Iterable[CellRecord], kind: CellKind) -> dict[str, dict[int, CellRecord]]:
    """Successful cells of a kind, by mechanism and block; a repeated cell counts once, the first time."""
    out: dict[str, dict[int, CellRecord]] = {}
    for record in records:
        if record.key.kind == kind and record.status == "ok":
            out.setdefault(record.key.mechanism, {}).setdefault(record.key.block, record)
    return out
