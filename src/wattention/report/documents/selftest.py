"""Print a self-test: what was asked of each instrument, and what it is worth."""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattention.meters.selftest import SelfTest
from wattention.meters.selftest_rig import Verdict

_STYLES: dict[Verdict, str] = {"sound": "green", "doubtful": "yellow", "faulty": "red", "not measurable": "dim"}
_PIPE_WIDTH = 120


def print_selftest(test: SelfTest, *, file: TextIO, width: int | None = None) -> None:
    """Print one self-test; into a pipe the text is plain and of a fixed width."""
    if width is None and not file.isatty():
        width = _PIPE_WIDTH
    console = Console(file=file, width=width, highlight=False)
    title = f"What the meters for {test.device} are worth ({test.spent_s:.3g} s of known loads)"
    console.print(Text(f"{title}: SIMULATED" if test.simulated else title, style="bold"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("verdict", "check", "instrument", "finding"):
        table.add_column(heading, overflow="fold")
    for check in test.checks:
        verdict = Text(check.verdict, style=_STYLES[check.verdict])
        table.add_row(verdict, Text(check.name), Text(check.instrument), Text(check.finding))
    console.print(table)
    for flag in test.flags:
        console.print(Text(f"disturbed: {flag}", style="yellow"))
    console.print(Text(worth_sentence(test), style="dim"))


def worth_sentence(test: SelfTest) -> str:
    """Say what these meters can and cannot be used for."""
    counts = Counter(check.verdict for check in test.checks)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _STYLES if counts[verdict])
    joules = [check for check in test.checks if check.name.startswith("linearity") and "counter" in check.instrument]
    if not joules:
        energy = "energy can only be estimated here, with a wide range"
    elif all(check.verdict == "sound" for check in joules):
        energy = (
            "joules of this host may be compared with each other; their absolute value is as good as the sensor class"
        )
    else:
        energy = "do not publish joules of this host before the faults above are understood"
    return f"{said}: {energy}."
