"""The command ``wattention``: one sub-command a file, found by name in this folder's table."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    raise SystemExit("not built yet")
