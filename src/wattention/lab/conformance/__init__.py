"""The conformance gate: no number of a mechanism is believed before every clause holds (docs/conformance.md)."""

from wattention.lab.conformance.gate import CLAUSES, Clause, judged_dtype, run_gate, usable_device
from wattention.lab.conformance.verdict import GateReport, Verdict, gate_report_from_json

__all__ = [
    "CLAUSES",
    "Clause",
    "GateReport",
    "Verdict",
    "gate_report_from_json",
    "judged_dtype",
    "run_gate",
    "usable_device",
]
