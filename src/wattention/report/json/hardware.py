"""A hardware profile as a JSON object, as its file has it."""

from __future__ import annotations

from typing import Any

from wattention.hardware.profile import HardwareProfile


def hardware_to_json(name: str, profile: HardwareProfile) -> dict[str, Any]:
    """Return the profile, numbers with unit, range and source."""
    return {"name": name, **profile.model_dump(mode="json", exclude_none=True)}
