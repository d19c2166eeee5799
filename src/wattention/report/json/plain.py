"""Any frozen value as JSON values, by its fields: what objects whose names are already good need, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from wattention.core.quantities import Absent, Quantity


def plain(value: Any) -> Any:
    """Return dataclasses, models, mappings and sequences as JSON has them; readings keep their own form."""
    if isinstance(value, Quantity | Absent):
        return value.to_json()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value
