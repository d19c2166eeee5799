"""Add whole blocks to a run until every pair of mechanisms is decided, or the budget is spent.

::

    run the blocks asked for . look . run one more . look . ...        a look judges the pairs of one measure

Looking after every block and stopping at the first success would find differences between equals. The verdicts of a
look therefore hold at all looks together (``analysis/sequential.py``), which makes the rule independent of how often
anybody looks and of why a run stopped: it may be interrupted, resumed, or given a larger budget tomorrow. Nothing but
the records and ``run.json`` is needed for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from wattention.analysis.pairs import Pair, compare_pairs
from wattention.core.errors import UserError
from wattention.core.run_spec import RunSpec
from wattention.study.store import StoredRun

RunBlocks = Callable[[RunSpec, bool], StoredRun]
"""Runs what is missing of a run with so many blocks; the flag says whether its folder holds a part of it already."""

Stop = Literal["decided", "blocks", "time", "not measurable"]


@dataclass(frozen=True, kw_only=True)
class Look:
    """The pairs after so many blocks, in the measure that decides."""

    blocks: int
    by: str
    pairs: tuple[Pair, ...]

    @property
    def open(self) -> tuple[Pair, ...]:
        """Pairs that have numbers and no verdict."""
        return tuple(pair for pair in self.pairs if pair.outcome == "undecided")

    @property
    def decided(self) -> tuple[Pair, ...]:
        """Pairs with a verdict."""
        return tuple(pair for pair in self.pairs if pair.decided)


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A run that added blocks: what it holds, its last look, and why it stopped."""

    run: StoredRun
    look: Look
    stop: Stop


def run_until_decided(
    spec: RunSpec,
    run_blocks: RunBlocks,
    *,
    resume: bool,
    on_look: Callable[[Look], None] = lambda look: None,
    clock: Callable[[], float] = time.monotonic,
) -> Decided:
    """Run a comparison, then block after block until its pairs are decided; see :class:`DecideSpec` for the budget.

    A pair without numbers (a refused mechanism, an instrument that is missing) is not waited for. A block that was
    begun is finished; one that would not end in time, at the pace of the slowest before it, is not begun.

    Raises:
        UserError: the run has more blocks than it may have, or ``run_blocks`` raised it.
    """
    decide = spec.decide
    assert decide is not None, "the run does not say by what its pairs are decided"
    if spec.blocks > decide.max_blocks:
        raise UserError(
            "the run has more blocks than it may have",
            got=f"{spec.blocks} blocks, at most {decide.max_blocks}",
            do="raise --max-blocks",
        )
    started, slowest = clock(), 0.0
    run = run_blocks(spec, resume)
    if not resume:
        slowest = (clock() - started) / spec.blocks
    while True:
        look = _look(run)
        on_look(look)
        if not look.open:
            return Decided(run=run, look=look, stop="decided" if look.decided else "not measurable")
        if look.blocks >= decide.max_blocks:
            return Decided(run=run, look=look, stop="blocks")
        begun = clock()
        if decide.max_time_s is not None and begun - started + slowest > decide.max_time_s:
            return Decided(run=run, look=look, stop="time")
        run = run_blocks(spec.replace(blocks=look.blocks + 1), True)
        slowest = max(slowest, clock() - begun)


def _look(run: StoredRun) -> Look:
    key = run.spec.decided_by
    pairs = compare_pairs(run.spec, run.records, keys=[key], planning=False)[key]
    return Look(blocks=run.spec.blocks, by=key, pairs=pairs)


def say_look(look: Look) -> str:
    """Say in a line how far a run is, for a progress display."""
    found = f"after {_blocks(look)} {len(look.decided)} of {len(look.pairs)} pairs are decided"
    if not look.open:
        return found
    names = [f"{pair.label} against {pair.reference}" for pair in look.open]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{found}; open: {shown}"


def say_stop(decided: Decided) -> str:
    """Say in a line why a run stopped, and how it would go on."""
    look, decide = decided.look, decided.run.spec.decide
    assert decide is not None
    if decided.stop == "not measurable":
        return f"stopped: no pair can be decided by {decide.by}: {look.pairs[0].why if look.pairs else 'there is none'}"
    if decided.stop == "decided":
        without = len(look.pairs) - len(look.decided)
        rest = f"; {without} without numbers" if without else ""
        return f"stopped after {_blocks(look)}: every pair is decided by {decide.by}{rest}"
    budget = (
        f"--max-blocks {decide.max_blocks}" if decided.stop == "blocks" else f"--max-time {decide.max_time_s:g} seconds"
    )
    return (
        f"stopped after {_blocks(look)} at {budget}: {len(look.open)} of {len(look.pairs)} pairs are undecided by "
        f"{decide.by}; raise it and --resume to go on"
    )


def _blocks(look: Look) -> str:
    return f"{look.blocks} block{'s' if look.blocks > 1 else ''}"
