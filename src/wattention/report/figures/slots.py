"""A mechanism keeps its colour and its symbol through all figures of a run."""

from __future__ import annotations

from wattention.analysis.summary import Comparison


def slots(comparison: Comparison) -> dict[str, int]:
    """Return the place of every mechanism's colour: its place in the run."""
    return {summary.label: place for place, summary in enumerate(comparison.mechanisms)}
