"""Which host a record comes from, and what kind of machine that is.

Blocks of one run may run on several hosts. What is compared within a block stays on one host, whatever the hosts are;
seconds and joules of unlike machines are never averaged (see :mod:`wattention.analysis.summary`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from wattention.core.records import CellRecord


def hostname_of(record: CellRecord) -> str:
    """Name of the host; empty where the record does not tell."""
    return str(record.environment.get("host", {}).get("hostname", ""))


def machine_of(record: CellRecord) -> str:
    """What makes a host's seconds comparable with another's: processor, accelerator, torch; in words."""
    host = record.environment.get("host", {})
    model = record.environment.get("device", {}).get("model")
    torch = record.environment.get("packages", {}).get("torch")
    parts = (host.get("cpu"), model, None if torch is None else f"torch {torch}")
    return ", ".join(str(part) for part in parts if part)


def commonest_machine(records: Iterable[CellRecord]) -> str | None:
    """The machine most of the records come from, the first of equals; None where all are of one kind."""
    kinds = Counter(machine_of(record) for record in records)
    return kinds.most_common(1)[0][0] if len(kinds) > 1 else None
