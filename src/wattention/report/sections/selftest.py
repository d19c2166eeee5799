"""A self-test of the meters: what was asked of each instrument, and what it is worth."""

from __future__ import annotations

from collections import Counter

from wattention.meters.selftest import SelfTest
from wattention.meters.selftest_rig import Verdict
from wattention.report.document import Cell, Column, Section, Table

_COLUMNS = (
    Column(key="verdict", heading="verdict", help="what it is worth", numeric=False, prose=True),
    Column(key="check", heading="check", help="what was asked", numeric=False, prose=True),
    Column(key="instrument", heading="instrument", help="of which meter", numeric=False, prose=True),
    Column(key="finding", heading="finding", help="what it answered", numeric=False, prose=True),
)
_VERDICTS: dict[Verdict, Cell] = {
    "sound": Cell(content="sound", tone="good"),
    "doubtful": Cell(content="doubtful", tone="doubtful"),
    "faulty": Cell(content="faulty", alarm=True),
    "not measurable": Cell(content="not measurable", tone="quiet"),
}


def selftest_section(test: SelfTest) -> Section:
    """Return the section of one self-test; what disturbed it is a warning."""
    title = f"What the meters for {test.device} are worth ({test.spent_s:.3g} s of known loads)"
    rows = tuple(
        (_VERDICTS[one.verdict], Cell(content=one.name), Cell(content=one.instrument), Cell(content=one.finding))
        for one in test.checks
    )
    return Section(
        title=f"{title}: SIMULATED" if test.simulated else title,
        table=Table(columns=_COLUMNS, rows=rows),
        warnings=tuple(f"disturbed: {flag}" for flag in test.flags),
        notes=(worth_sentence(test),),
    )


def worth_sentence(test: SelfTest) -> str:
    """Say what these meters can and cannot be used for."""
    counts = Counter(check.verdict for check in test.checks)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])
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
