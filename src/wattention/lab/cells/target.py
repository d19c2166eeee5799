"""Train until the held-out loss reaches the target, or the cap: what the same quality costs with one mechanism.

::

    build | evaluate | k STEPS | evaluate | k STEPS | evaluate | ... | energy

Tokens, seconds and joules to the target count the training steps only, from the first on (compilation is in them; the
build is not). Evaluations are measured beside them. Learning rate, batches and initial weights are those of the
training cell of the same block, step by step; after the fixed steps the learning rate stays at its floor.
"""

from __future__ import annotations

from typing import Any

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, Reading, counted, measured
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.lab.cells.build import build_trainer
from wattention.lab.cells.findings import Findings, load_choice
from wattention.lab.phases.stage import ReportProgress, Stage
from wattention.lab.phases.stretches import Stretches
from wattention.lab.quality.matching import describe_match
from wattention.lab.quality.target_loss import TargetRule, explain_missing, find_crossing, smoothed
from wattention.lab.training import Trainer
from wattention.meters.window import Panel


def run_target_cell(cell: CellSpec, progress: ReportProgress) -> Findings:
    """Train with one mechanism until its held-out loss reaches the target; see the module's timeline."""
    mechanism, config = load_choice(cell)
    rule = TargetRule.of(cell)
    with Panel.open(cell.run.device) as panel:
        stage = Stage(cell=cell, panel=panel, progress=progress)
        progress(phase="build")
        with stage.phase("build"):
            trainer = build_trainer(cell, mechanism, config)
        stretches = Stretches(panel=panel, tokens_per_step=cell.run.tokens_per_step)
        curve = follow_curve(trainer, stretches, rule, progress)
        stretches.conclude(stage, trainer.step)
    found = target_phase(curve, rule, stage.phases["energy"])
    facts: dict[str, Any] = {
        "settings": config.model_dump(mode="json"),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "learning_rate": trainer.spec.learning_rate,
        "match": describe_match(cell.run, cell.key.mechanism),
        "data": trainer.batches.provenance,
        "target": {
            "heldout_bits_per_byte": rule.loss,
            "smoothing_evaluations": rule.smoothing,
            "patience_evaluations": rule.patience,
            "evaluate_every_steps": rule.evaluate_every,
            "most_tokens": rule.most_steps * cell.run.tokens_per_step,
            "reached": isinstance(found.readings["tokens_to_target"], Quantity),
        },
    }
    return Findings(phases={**stage.phases, "target": found}, facts=facts)


def follow_curve(
    trainer: Trainer, stretches: Stretches, rule: TargetRule, progress: ReportProgress
) -> dict[str, tuple[float, ...]]:
    """Train and evaluate in turn until the target is reached or the cap is; return the curve.

    The curve's series, one entry an evaluation, the untrained model first: ``tokens``, ``time_s``,
    ``heldout_bits_per_byte``.
    """
    tokens: list[float] = []
    seconds: list[float] = []
    losses: list[float] = []

    def look() -> None:
        losses.append(_bits_per_byte(stretches, trainer))
        tokens.append(float(stretches.tokens))
        seconds.append(stretches.time_s)

    look()
    while trainer.next_step < rule.most_steps and find_crossing(losses, rule) is None:
        stretches.train(trainer, min(rule.evaluate_every, rule.most_steps - trainer.next_step))
        look()
        text = f"{losses[-1]:.3f} bits/byte held out, target {rule.loss:.3f}"
        progress(phase="target", done=trainer.next_step, total=rule.most_steps, text=text)
    return {"tokens": tuple(tokens), "time_s": tuple(seconds), "heldout_bits_per_byte": tuple(losses)}


def _bits_per_byte(stretches: Stretches, trainer: Trainer) -> float:
    value = stretches.evaluate(trainer.evaluate).bits_per_byte
    if value is None:
        raise UserError(
            "a target loss needs bits per byte",
            got="data that does not tell how many bytes a token stands for",
            wanted="text",
            do="train on --text, or drop --target-loss",
        )
    return value


def target_phase(curve: dict[str, tuple[float, ...]], rule: TargetRule, energy: Phase) -> Phase:
    """Return what it took to reach the target, interpolated between two evaluations, or why it was not reached."""
    losses, tokens = curve["heldout_bits_per_byte"], curve["tokens"]
    crossing = find_crossing(losses, rule)
    how = (
        f"to a held-out loss of {rule.loss:.4f} bits per byte, mean of {rule.smoothing} evaluations every "
        f"{rule.evaluate_every} steps, {rule.patience} in a row; interpolated between the evaluations around it"
    )
    best = measured(min(smoothed(losses, rule.smoothing)), "bit/byte", f"lowest mean of {rule.smoothing} evaluations")
    readings: dict[str, Reading] = {
        "target_bits_per_byte": counted(rule.loss, "bit/byte", "the run's target"),
        "best_smoothed_bits_per_byte": best,
        "spent_tokens": counted(tokens[-1], "token", "tokens trained on in this cell"),
        "spent_time_s": measured(curve["time_s"][-1], "s", "sum of the training windows of this cell"),
    }
    readings["spent_energy_j"] = _joules(readings["spent_time_s"], energy)
    if crossing is None or crossing.after == 0:
        reason = "the untrained model is at or below the target: it asks for nothing"
        missing = Absent(reason if crossing is not None else explain_missing(losses, rule, tokens[-1]))
        return Phase(readings={**readings, **dict.fromkeys(TO_TARGET, missing)}, samples=curve)
    to_tokens, to_seconds = crossing.at(tokens), crossing.at(curve["time_s"])
    readings["tokens_to_target"] = _bracketed(to_tokens, "token", f"tokens trained {how}")
    readings["time_to_target_s"] = _bracketed(to_seconds, "s", f"seconds of training {how}")
    readings["energy_to_target_j"] = _joules(readings["time_to_target_s"], energy)
    return Phase(readings=readings, samples=curve)


TO_TARGET = ("tokens_to_target", "time_to_target_s", "energy_to_target_j")


def _bracketed(value: tuple[float, float, float], unit: str, source: str) -> Quantity:
    at, low, high = value
    return Quantity(value=at, unit=unit, origin="measured", source=source, low=low, high=high)


def _joules(seconds: Reading, energy: Phase) -> Reading:
    """Return seconds of training times the mean power of training in this cell."""
    joules, time = energy.readings.get("energy_j"), energy.readings.get("time_s")
    if not isinstance(seconds, Quantity):
        return seconds
    if not isinstance(joules, Quantity):
        return joules or Absent("the energy phase recorded no energy_j")
    if not isinstance(time, Quantity) or time.value <= 0:
        return Absent("the energy phase recorded no time_s")
    share = seconds.value / time.value
    source = f"seconds x mean power of training; {joules.source}"
    return joules.mapped(lambda value: value * share, unit="J", source=source)
