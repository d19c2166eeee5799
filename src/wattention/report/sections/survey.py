"""A survey of the instruments: what works, what is missing and how to get it, and what measuring itself costs."""

from __future__ import annotations

from wattention.core.quantities import Quantity
from wattention.meters.survey import Finding, Survey
from wattention.report.document import Cell, Column, Section, Table
from wattention.report.units import format_value

_COLUMNS = (
    Column(key="state", heading="state", help="whether it works here", numeric=False, prose=True),
    Column(key="instrument", heading="instrument", help="what could measure", numeric=False, prose=True),
    Column(key="answers", heading="answers, or what to do", help="its quantities", numeric=False, prose=True),
)


def survey_section(survey: Survey) -> Section:
    """Return the section of one device."""
    host = survey.environment["host"]
    kind = ", virtual machine" if host["virtual_machine"] else ""
    machine = f"{host['hostname']}: {host['cpu']}, {host['cores_logical']} cores{kind}"
    rows = tuple((_state(one), Cell(content=one.title), Cell(content=_third(one))) for one in survey.findings)
    return Section(
        title=f"What can be measured on {survey.device} ({machine})",
        table=Table(columns=_COLUMNS, rows=rows),
        notes=(_cost(survey),),
    )


def _state(finding: Finding) -> Cell:
    match finding.state:
        case "works":
            return Cell(content=finding.state, tone="good")
        case "other device":
            return Cell(content=finding.state, tone="quiet")
        case "missing":
            return Cell(content=finding.state, alarm=True)


def _third(finding: Finding) -> str:
    if finding.state != "works":
        return finding.detail
    answers = ", ".join(finding.answers)
    return f"{answers}\n{finding.detail}" if finding.detail else answers


def _cost(survey: Survey) -> str:
    """Say what measuring costs."""
    inside, around = survey.own_cost["inside_s"], survey.own_cost["around_s"]
    assert isinstance(inside, Quantity)
    assert isinstance(around, Quantity)
    return (
        f"A measuring window adds {format_value(inside.value, 's')} to the interval it measures and takes "
        f"{format_value(around.value, 's')} around it ({inside.source})."
    )
