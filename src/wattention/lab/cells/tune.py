"""Find one mechanism's learning rate: a short probe of every rate, judged on a validation split.

::

    build | for every rate: fresh model, n STEPS, evaluate on validation windows | energy

A probe is a training of its own: warm-up and cosine over its few steps, the same first weights and batches for every
rate. A rate at which training diverges is a result, not a failure, as long as another one does not. The search counts:
its tokens, seconds and joules stand in the record like those of any training.
"""

from __future__ import annotations

from typing import Any

from wattention.core.quantities import Absent, Reading, counted, measured
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec, RunSpec
from wattention.core.specs import TrainingSpec
from wattention.data.batches import Batches
from wattention.data.task import batches_of_run
from wattention.lab.cells.findings import Findings, load_choice
from wattention.lab.phases.stage import ReportProgress, Stage
from wattention.lab.phases.stretches import Stretches
from wattention.lab.quality.preflight import check_validation
from wattention.lab.training import DivergedError, Trainer
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.meters.window import Panel
from wattention.model.gpt2 import GPT2

LEAST_STEPS = 10


def probe_steps(run: RunSpec) -> int:
    """Return the optimiser steps of one probe."""
    assert run.tune is not None, "a run without rates to try has no probes"
    return run.tune.steps or max(LEAST_STEPS, run.training.steps // 4)


def probe_training(cell: CellSpec, rate: float) -> TrainingSpec:
    """Return how a probe trains: as the run does, on the scale of the probe's steps, at its own rate."""
    steps, whole = probe_steps(cell.run), cell.training
    warmup = min(whole.warmup_steps, round(whole.warmup_steps * steps / whole.steps))
    return whole.replace(steps=steps, warmup_steps=warmup, learning_rate=rate)


def choose_rate(losses: dict[float, float | None]) -> float | None:
    """Return the rate with the lowest loss, the smaller one of equals; None where every rate diverged."""
    finite = {rate: loss for rate, loss in losses.items() if loss is not None}
    return min(finite, key=lambda rate: (finite[rate], rate)) if finite else None


def run_tune_cell(cell: CellSpec, progress: ReportProgress) -> Findings:
    """Try every rate and choose one; ``diverged`` where none trains."""
    run, tune = cell.run, cell.run.tune
    assert tune is not None, "a run without rates to try has no tune cells"
    mechanism, config = load_choice(cell)
    losses: dict[float, float | None] = {}
    probes: dict[str, Phase] = {}
    with Panel.open(run.device) as panel:
        stage = Stage(cell=cell, panel=panel, progress=progress)
        progress(phase="build")
        with stage.phase("build"):
            batches = open_validated_batches(cell)
        whole = Stretches(panel=panel, tokens_per_step=run.tokens_per_step)
        for done, rate in enumerate(tune.learning_rates):
            progress(phase="tune", done=done, total=len(tune.learning_rates), text=f"learning rate {rate:g}")
            trainer = _fresh_trainer(cell, mechanism, config, batches, rate)
            losses[rate], probes[f"rate {rate:g}"] = _probe(panel, trainer, run.tokens_per_step, whole)
        whole.conclude(stage, trainer.step)
    phases = {**stage.phases, **probes}
    best = choose_rate(losses)
    facts: dict[str, Any] = {
        "learning_rates": list(tune.learning_rates),
        "chosen_learning_rate": best,
        "probe_steps": probe_steps(run),
        "budget_tokens": len(tune.learning_rates) * probe_steps(run) * run.tokens_per_step,
        "data": batches.provenance,
    }
    if best is None:
        detail = f"training diverged at every learning rate tried: {', '.join(f'{rate:g}' for rate in losses)}"
        return Findings(phases=phases, facts=facts, status="diverged", detail=detail)
    return Findings(phases=phases, facts=facts)


def open_validated_batches(cell: CellSpec) -> Batches:
    """Open the data of a search.

    Errors: ``UserError`` when too little held-out text is left to judge rates by.
    """
    batches = batches_of_run(cell.run, order_seed=cell.seed)
    check_validation(batches)
    return batches


def _fresh_trainer(
    cell: CellSpec, mechanism: Mechanism, config: MechanismConfig, batches: Batches, rate: float
) -> Trainer:
    model = GPT2(cell.model, mechanism, config, seed=cell.seed)
    return Trainer(model, batches, probe_training(cell, rate), device=cell.run.device)


def _probe(panel: Panel, trainer: Trainer, tokens_per_step: int, whole: Stretches) -> tuple[float | None, Phase]:
    """Train one probe and judge it; return its validation loss, None where it diverged, and its phase."""
    own = Stretches(panel=panel, tokens_per_step=tokens_per_step)
    judged: Reading
    value: float | None = None
    try:
        own.train(trainer, trainer.spec.steps)
        result = own.evaluate(lambda: trainer.evaluate(trainer.batches.validation()))
        value = result.loss
        judged = measured(value, "nat/token", f"loss on {result.targets} validation tokens, apart from the held-out")
    except DivergedError as error:
        judged = Absent(str(error))
    whole.losses += own.losses
    whole.trained += own.trained
    whole.evaluated += own.evaluated
    phase = own.training_phase()
    rate = counted(trainer.spec.learning_rate, "1", "the rate tried")
    return value, Phase(
        readings={**phase.readings, "learning_rate": rate, "validation_nats_per_token": judged},
        samples=phase.samples,
        flags=phase.flags,
    )
