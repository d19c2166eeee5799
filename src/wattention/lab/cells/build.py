"""What a training cell starts with: data, model and optimiser, from the cell's specification."""

from __future__ import annotations

from wattention.core.run_spec import CellSpec
from wattention.data.task import open_batches
from wattention.lab.parallel.one_process import ALONE, OneProcess
from wattention.lab.training import Trainer
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.model.gpt2 import GPT2


def build_trainer(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig, spread: OneProcess = ALONE) -> Trainer:
    """Build data, model and optimiser of a training cell."""
    run, spec = cell.run, cell.training
    batches = open_batches(
        run.data,
        vocabulary=run.model.vocabulary,
        batch=spec.batch,
        tokens=spec.tokens or run.model.context,
        order_seed=cell.seed,
    )
    model = GPT2(cell.model, mechanism, config, seed=cell.seed)
    return Trainer(model, batches, spec, device=run.device, spread=spread)
