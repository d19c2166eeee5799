"""The gate as a cell: prove a mechanism, with its settings and this model's heads, before anything of it is timed."""

from __future__ import annotations

import torch

from wattention.core.errors import UserError
from wattention.core.run_spec import CellSpec
from wattention.core.shapes import AttentionShape
from wattention.lab.cells.findings import Findings, load_choice
from wattention.lab.conformance import run_gate
from wattention.lab.phases.stage import ReportProgress
from wattention.mechanisms.base import Mechanism, MechanismConfig

TOKENS = (37, 75, 150, 301, 602)
"""Lengths to try, shortest first; odd on purpose, so that no block or chunk size divides them."""

MOST_HEAD_DIM = 32
"""Wider heads prove nothing more and cost time before every comparison."""


def run_gate_cell(cell: CellSpec, progress: ReportProgress) -> Findings:
    """Run every clause; a failed one makes the cell ``gate_failed``."""
    mechanism, config = load_choice(cell)
    progress(phase="gate")
    torch.set_num_threads(1)  # the shapes are small, and threads that wait for each other are slower than one
    # parameters are float32 under autocast too; the kernel sees the autocast precision
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[cell.run.training.precision]
    shape = gate_shape(mechanism, config, width=cell.run.model.width, heads=cell.run.model.heads)
    report = run_gate(mechanism, shape=shape, config=config, device=cell.run.device, dtype=dtype, seed=cell.seed)
    facts = {"gate": report.to_json(), "failed_clauses": list(report.failed_clauses)}
    if report.passed:
        return Findings(phases={}, facts=facts)
    details = "; ".join(f"{name} ({report.verdict(name).detail})" for name in report.failed_clauses)
    return Findings(phases={}, facts=facts, status="gate_failed", detail=f"failed {details}")


def gate_shape(mechanism: Mechanism, config: MechanismConfig, *, width: int, heads: int) -> AttentionShape:
    """Return the shortest shape with the model's heads that the settings allow.

    A window of 256 tokens cannot be built into a context of 37: the next length that holds it is used, so that the
    settings of the run are what is proved.
    """
    narrow = heads * min(width // heads, MOST_HEAD_DIM)
    for tokens in TOKENS[:-1]:
        shape = AttentionShape(batch=2, tokens=tokens, width=narrow, heads=heads)
        try:
            with torch.device("meta"):
                mechanism.build(shape, config, 0.0)
        except UserError:
            continue
        return shape
    return AttentionShape(batch=2, tokens=TOKENS[-1], width=narrow, heads=heads)
