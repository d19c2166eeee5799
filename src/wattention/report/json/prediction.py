"""Predictions as one JSON object: every quantity with unit, origin and source, every gap with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wattention.analysis.predict import Prediction
from wattention.report.json.plain import plain


def predictions_to_json(named: Sequence[tuple[str, Prediction]]) -> dict[str, Any]:
    """Return ``{"schema", "points": [{"label", ...}]}``."""
    return {"schema": 1, "points": [{"label": label, **plain(one)} for label, one in named]}
