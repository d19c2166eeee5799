"""Predictions as one JSON object: every quantity with unit, origin and source, every gap with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wattention.analysis.predict import Prediction
from wattention.report.json.plain import plain


def predictions_to_json(
    named: Sequence[tuple[str, Prediction]], refused: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return ``{"schema", "points": [{"label", ...}], "refused": {label: reason}}``."""
    points = [{"label": label, **plain(one)} for label, one in named]
    return {"schema": 1, "points": points, "refused": dict(refused or {})}
