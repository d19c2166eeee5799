"""One cell end to end, in the process it has for itself: gate, search, training, one layer over lengths, target.

Whatever the work raises ends in a record: out of memory, divergence and refusals are results, not crashes.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import torch

from wattention.core.records import CellRecord
from wattention.core.run_spec import CellSpec
from wattention.lab.cells.failures import status_of
from wattention.lab.cells.findings import Findings
from wattention.lab.parallel.one_process import ALONE, OneProcess
from wattention.lab.phases.stage import ReportProgress
from wattention.meters.environment import record_environment


def run_cell(cell: CellSpec, *, progress: ReportProgress, spread: OneProcess = ALONE) -> CellRecord:
    """Run one cell and return its record; only a lost parent or an interrupt escapes.

    A training cell may be ``spread`` over several processes, which all run it; the record of rank 0 holds all of it.
    """
    record = CellRecord(
        key=cell.key, order=cell.order, status="ok", started_utc=datetime.now(UTC).isoformat(timespec="seconds")
    )
    torch.set_num_threads(cell.run.threads)
    record = replace(
        record,
        environment=record_environment(device=cell.run.device, seeds={"cell": cell.seed, "order": cell.run.seed}),
    )
    try:
        found = _work_of(cell, spread)(cell, progress)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except BaseException as error:
        traceback.print_exc()
        status, detail = status_of(error)
        return replace(record, status=status, detail=detail)
    return replace(record, status=found.status, detail=found.detail, phases=found.phases, facts=found.facts)


def _work_of(cell: CellSpec, spread: OneProcess) -> Callable[[CellSpec, ReportProgress], Findings]:
    match cell.key.kind:
        case "gate":
            from wattention.lab.cells.gate import run_gate_cell

            return run_gate_cell
        case "tune":
            from wattention.lab.cells.tune import run_tune_cell

            return run_tune_cell
        case "train":
            from wattention.lab.cells.train import run_train_cell

            return partial(run_train_cell, spread=spread)
        case "lengths":
            from wattention.lab.cells.lengths import run_length_cell

            return run_length_cell
        case "target":
            from wattention.lab.cells.target import run_target_cell

            return run_target_cell
