"""What a training cell starts with: data, model and optimiser, from the cell's specification."""

from __future__ import annotations

from wattention.core.run_spec import CellSpec
from wattention.data.task import batches_of_run
from wattention.lab.parallel.one_process import ALONE, OneProcess
from wattention.lab.training import Trainer
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.model.gpt2 import GPT2


def build_trainer(cell: CellSpec, mechanism: Mechanism, config: MechanismConfig, spread: OneProcess = ALONE) -> Trainer:
    """Build data, model and optimiser of a training cell."""
    batches = batches_of_run(cell.run, order_seed=cell.seed)
    model = GPT2(cell.model, mechanism, config, seed=cell.seed)
    return Trainer(model, batches, cell.training, device=cell.run.device, spread=spread)
