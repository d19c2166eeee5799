"""Names in a sentence, numbers in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def list_names(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def times(ratio: float) -> str:
    """Return a ratio as ``1.04x`` or ``3.2x`` or ``31x``."""
    return f"{ratio:.2f}x" if ratio < 1.995 else f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:.0f}x"
