"""Predictions as one JSON object: every quantity with unit, origin and source, every gap with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from wattention.analysis.predict import Prediction
from wattention.core.quantities import Absent, Quantity


def predictions_json(named: Sequence[tuple[str, Prediction]]) -> dict[str, Any]:
    """Return ``{"schema", "points": [{"label", ...}]}``."""
    return {"schema": 1, "points": [{"label": label, **_plain(one)} for label, one in named]}


def _plain(value: Any) -> Any:
    if isinstance(value, (Quantity, Absent)):
        return value.to_json()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value
