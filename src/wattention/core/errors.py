"""Errors that teach: what failed, what was got, what was wanted, what to do.

Every error a user can cause is a :class:`UserError` (a ``ValueError``); the command line prints it without a traceback
and exits with code 2. A broken invariant of our own is an ``assert``, never a ``UserError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the user asked for cannot be done.

    Args:
        what: what failed, one clause without a full stop.
        got: the offending value, as the user wrote it.
        wanted: what would have been accepted.
        do: the next step to take, an imperative sentence.
    """

    def __init__(self, what: str, *, got: object = None, wanted: str | None = None, do: str | None = None) -> None:
        self.what, self.got, self.wanted, self.do = what, got, wanted, do
        parts = [what]
        if got is not None:
            parts.append(f"got: {got}")
        if wanted is not None:
            parts.append(f"wanted: {wanted}")
        if do is not None:
            parts.append(f"do this: {do}")
        super().__init__("\n  ".join(parts))


class UnsupportedError(UserError):
    """A mechanism, kernel or device cannot do what was asked, and falling back silently is not an option."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not in a catalogue, with the nearest known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    do = f"did you mean {' or '.join(near)}?" if near else f"choose one of the {len(names)} names above"
    return UserError(f"unknown {kind}", got=name, wanted=", ".join(names), do=do)
