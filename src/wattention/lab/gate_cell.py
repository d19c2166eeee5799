"""The gate as a cell: prove a mechanism on this device and in this precision before anything of it is timed."""

from __future__ import annotations

import torch

from wattention.core.run_spec import CellSpec
from wattention.lab.cell import Findings, ReportProgress, load_choice
from wattention.lab.conformance import run_gate


def run_gate_cell(cell: CellSpec, progress: ReportProgress) -> Findings:
    """Run every clause; a failed one makes the cell ``gate_failed``."""
    mechanism, config = load_choice(cell)
    progress(phase="gate")
    # parameters are float32 under autocast too; the kernel sees the autocast precision
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[cell.run.training.precision]
    report = run_gate(mechanism, config=config, device=cell.run.device, dtype=dtype, seed=cell.seed)
    failed = [clause.name for clause in report.clauses if clause.status == "failed"]
    facts = {"clauses": report.to_json()["clauses"], "failed_clauses": failed}
    if not failed:
        return Findings(phases={}, facts=facts)
    return Findings(phases={}, facts=facts, status="gate_failed", detail=f"failed {', '.join(failed)}")
