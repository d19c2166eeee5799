"""The phases of one cell while it runs: each measured in a window of its own, on the cell's common clock.

Over several ranks a window opens when all are there, and its readings become one set of all ranks'
(parallel/readings.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from wattention.core.quantities import Reading
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.lab.parallel.one_process import ALONE, OneProcess
from wattention.lab.phases.power_trace import window_samples
from wattention.meters.window import Panel


class ReportProgress(Protocol):
    """Tells the outside how far a cell is."""

    def __call__(
        self, *, phase: str, done: int = 0, total: int = 0, text: str = "", tokens_per_s: float | None = None
    ) -> None:
        """Send one sign of life."""


@dataclass(kw_only=True)
class Stage:
    """What the phases of one cell share."""

    cell: CellSpec
    panel: Panel
    progress: ReportProgress
    spread: OneProcess = ALONE
    phases: dict[str, Phase] = field(default_factory=dict)
    _origin_ns: int | None = None
    """The clock at the start of the first window; samples of all phases count from there."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the body as one phase."""
        window = self.panel.window()
        self.spread.barrier()
        with window:
            yield
        assert window.raw is not None
        if self._origin_ns is None:
            self._origin_ns = window.raw.interval.start_ns
        flags = tuple(flag.to_json() for flag in window.flags)
        samples = window_samples(window.raw, self._origin_ns)
        self.phases[name] = self.spread.merge(Phase(readings=window.readings, samples=samples, flags=flags))

    def add(self, name: str, readings: Mapping[str, Reading], **samples: tuple[float, ...]) -> None:
        """Add what the work of a measured phase found."""
        phase = self.phases[name]
        self.phases[name] = replace(
            phase, readings={**phase.readings, **readings}, samples={**phase.samples, **samples}
        )
