"""The hardware profiles by name: the folder ``profiles/`` is the registry, a user's own TOML file is treated alike."""

from __future__ import annotations

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


def _path(name: str) -> Path:
    if name.endswith(".toml"):
        return Path(name)
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    if key not in profile_names():
        raise unknown_name("hardware profile", name, profile_names())
    return _folder() / f"{key}.toml"
