"""One comparison for programs, as an object and as a line: every quantity with unit, origin and source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wattention.analysis.blocks import Ratio
from wattention.analysis.pairs import Pair
from wattention.analysis.summary import Comparison, MechanismSummary
from wattention.core.records import SCHEMA
from wattention.report.json.pairs import pairs_to_json
from wattention.report.json.plain import plain


def comparison_json(comparison: Comparison, *, folder: Path, pairs: Mapping[str, Sequence[Pair]] | None = None) -> str:
    """Return the object as one line."""
    return json.dumps(
        comparison_to_json(comparison, folder=folder, pairs=pairs), allow_nan=False, separators=(",", ":")
    )


def comparison_to_json(
    comparison: Comparison, *, folder: Path, pairs: Mapping[str, Sequence[Pair]] | None = None
) -> dict[str, Any]:
    """Return ``{"schema", "run", "reference", "mechanisms", "pairs", "equal_quality", "notes"}``."""
    return {
        "schema": SCHEMA,
        "run": str(folder),
        "reference": comparison.reference,
        "mechanisms": [_mechanism(comparison, summary) for summary in comparison.mechanisms],
        "pairs": pairs_to_json(pairs or {}),
        "equal_quality": plain(comparison.quality),
        "notes": list(comparison.notes),
    }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    return None if ratio is None else asdict(ratio) | {"tie": ratio.tie}


def _mechanism(comparison: Comparison, summary: MechanismSummary) -> dict[str, Any]:
    return {
        "mechanism": summary.label,
        "status": summary.status,
        "detail": summary.detail,
        "failed_clauses": list(summary.failed_clauses),
        "kernels": list(summary.kernels),
        "quantities": {key: reading.to_json() for key, reading in summary.quantities.items()},
        "best": sorted(summary.best),
        "time_ratio": _ratio(summary.time_ratio),
        "time_ratio_without_flagged": _ratio(summary.time_ratio_without_flagged),
        "lengths": {
            str(length): {
                "time": point.time_s.to_json(),
                "peak": point.peak_bytes.to_json(),
                "energy": point.energy_j.to_json(),
                "net_energy": point.net_energy_j.to_json(),
            }
            for length, point in comparison.lengths[summary.label].items()
        },
        "crossovers": [
            {"than": rival, "in": what, "kind": found.kind, "length_tokens": found.length_tokens}
            for (rival, what), found in comparison.crossovers[summary.label].items()
        ],
    }
