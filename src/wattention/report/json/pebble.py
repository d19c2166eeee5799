"""The confrontation of optima, schedules and bounds of tiny attention as JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattention.iocomplexity.pebble.bridge import Confrontation


def confrontations_to_json(rows: Sequence[Confrontation]) -> list[dict[str, Any]]:
    """Return one object a case."""
    return [
        {
            "direction": row.case.direction, "tokens": row.case.tokens, "dim": row.case.dim, "mask": row.case.mask,
            "fast_words": row.case.fast_words, "optimum": row.solution.optimum, "proved": row.solution.proved,
            "cost": row.solution.cost, "lower_bound": row.solution.lower_bound,
            "schedules": dict(row.schedules), "bounds": dict(row.bounds),
        }
        for row in rows
    ]  # fmt: skip
