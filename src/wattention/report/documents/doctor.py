"""Print a survey of the instruments: what works, what is missing and how to get it."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from wattention.core.quantities import Quantity
from wattention.meters.survey import Finding, Survey

_STYLES = {"works": "green", "missing": "red", "other device": "dim"}
_PIPE_WIDTH = 120


def print_survey(survey: Survey, *, file: TextIO, width: int | None = None) -> None:
    """Print one survey; into a pipe the text is plain and of a fixed width."""
    if width is None and not file.isatty():
        width = _PIPE_WIDTH
    console = Console(file=file, width=width, highlight=False)
    host = survey.environment["host"]
    kind = ", virtual machine" if host["virtual_machine"] else ""
    machine = f"{host['hostname']}: {host['cpu']}, {host['cores_logical']} cores{kind}"
    title = f"What can be measured on {survey.device} ({machine})"
    console.print(Text(title, style="bold"))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("state", "instrument", "answers, or what to do"):
        table.add_column(heading, overflow="fold")
    for finding in survey.findings:
        table.add_row(Text(finding.state, style=_STYLES[finding.state]), Text(finding.title), Text(_third(finding)))
    console.print(table)
    console.print(Text(cost_sentence(survey), style="dim"))


def _third(finding: Finding) -> str:
    if finding.state != "works":
        return finding.detail
    answers = ", ".join(finding.answers)
    return f"{answers}\n{finding.detail}" if finding.detail else answers


def cost_sentence(survey: Survey) -> str:
    """Say what measuring costs."""
    inside, around = survey.own_cost["inside_s"], survey.own_cost["around_s"]
    assert isinstance(inside, Quantity)
    assert isinstance(around, Quantity)
    return (
        f"A measuring window adds {inside.value * 1e6:.3g} µs to the interval it measures and takes "
        f"{around.value * 1e3:.3g} ms around it ({inside.source})."
    )
