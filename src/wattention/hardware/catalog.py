"""The hardware profiles by name: the folder ``profiles/`` is the registry, a user's own TOML file is treated alike."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from wattention.core.errors import unknown_name
from wattention.hardware.profile import HardwareProfile, read_profile


def _folder() -> Path:
    return Path(str(files("wattention.hardware") / "profiles"))


def profile_names() -> tuple[str, ...]:
    """Names of the built-in profiles, sorted, without reading them."""
    return tuple(sorted(path.stem for path in _folder().glob("*.toml")))


def profile_text(name: str) -> str:
    """The TOML text of a built-in profile, or of the file at a path: a start for a profile of your own."""
    path = _path(name)
    read_profile(path)
    return path.read_text(encoding="utf-8")


def load_profile(name: str) -> HardwareProfile:
    """Load a built-in profile by name, or the TOML file at a path.

    Raises:
        UserError: an unknown name (with the nearest known ones), or a file that is not a valid profile.
    """
    return read_profile(_path(name))


def profiles_of_device(device_name: str) -> tuple[str, ...]:
    """Built-in profiles whose chip a device's own name tells: both A100 profiles for "NVIDIA A100-SXM4-80GB"."""
    words = set(re.split(r"[^a-z0-9]+", device_name.lower()))
    return tuple(name for name in profile_names() if _chip(name) in words)


def _chip(name: str) -> str:
    """The part of a profile's name that has a digit: ``4090`` of ``rtx-4090``, ``a100`` of ``a100-40``."""
    return next((part for part in name.split("-") if re.search(r"\d", part)), "")


def _path(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    if key not in profile_names():
        raise unknown_name("hardware profile", name, profile_names())
    return _folder() / f"{key}.toml"
