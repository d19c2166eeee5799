"""Ctrl-C that cannot get lost.

Python raises KeyboardInterrupt wherever the main thread happens to be; inside a destructor or a weak reference's
callback it is printed and dropped, and the run goes on as if nobody had asked. So it is remembered, too, and raised
again at the next safe point: when a record is on disk.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """Remembers Ctrl-C while the body of the ``with`` statement runs; outside of the main thread it does nothing."""

    def __init__(self) -> None:
        self._seen = False
        self._installed = False

    def __enter__(self) -> Interrupts:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._remember)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        raise KeyboardInterrupt

    def raise_if_lost(self) -> None:
        """Raise the interrupt that was heard and did not end the body."""
        if self._seen:
            raise KeyboardInterrupt
