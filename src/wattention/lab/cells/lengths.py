"""Time one attention layer, forward and backward, over sequence lengths: where one mechanism overtakes another.

Each length is a phase of its own, named by the length, with its raw samples. A length that does not fit ends in an
absent reading with the reason, and the longer ones are not tried. Where an energy counter can be read the passes are
repeated until it resolves them, at every length, and the idle machine is watched once before.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import psutil
import torch
from torch import Tensor

from wattention.core.quantities import Absent, Quantity, Reading, measured, predicted
from wattention.core.records import Phase
from wattention.core.run_spec import CellSpec
from wattention.core.shapes import AttentionShape
from wattention.lab.cells.failures import is_out_of_memory
from wattention.lab.cells.findings import Findings, load_choice
from wattention.lab.phases.energy import EnergyWindows
from wattention.lab.phases.stage import ReportProgress, Stage
from wattention.mechanisms.base import Mechanism, MechanismConfig
from wattention.meters.tensor_memory import measure_peak_tensor_bytes
from wattention.meters.window import Panel, synchronise_of

LEAST_REPEATS = 3
MOST_REPEATS = 50
ENERGY_METERS = ("cpu", "energy", "sampled_power", "disturbance")


def run_length_cell(cell: CellSpec, progress: ReportProgress) -> Findings:
    """Measure every length of the run, shortest first."""
    mechanism, config = load_choice(cell)
    phases: dict[str, Phase] = {}
    too_long = ""
    lengths = sorted(cell.run.measure.lengths)
    with Panel.open(cell.run.device, ENERGY_METERS) as panel:
        energy = EnergyWindows(stage=Stage(cell=cell, panel=panel, progress=progress))
        energy.watch_idle("before")
        for done, tokens in enumerate(lengths):
            progress(phase="lengths", done=done, total=len(lengths), text=f"T={tokens}")
            if too_long:
                phases[str(tokens)] = _absent_phase(too_long)
                continue
            try:
                phases[str(tokens)] = _measure_length(cell, mechanism, config, tokens, energy)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                phases[str(tokens)] = _absent_phase(f"out of memory at {tokens} tokens")
            if isinstance(phases[str(tokens)].readings["layer_time_s"], Absent):
                too_long = f"not tried: {tokens} tokens did not fit"
    watched = {name: phase for name, phase in energy.stage.phases.items() if name.startswith("idle_")}
    return Findings(phases={**watched, **phases}, facts={})


def _measure_length(
    cell: CellSpec, mechanism: Mechanism, config: MechanismConfig, tokens: int, energy: EnergyWindows
) -> Phase:
    model, device = cell.run.model, cell.run.device
    shape = AttentionShape(batch=1, tokens=tokens, width=model.width, heads=model.heads)
    misfit = _does_not_fit(mechanism, config, shape, device)
    if misfit:
        return _absent_phase(misfit)
    step = _layer_step(cell, mechanism, config, shape)
    synchronise = synchronise_of(device)
    step()
    samples: list[float] = []
    began = time.perf_counter()
    while len(samples) < LEAST_REPEATS or (
        time.perf_counter() - began < cell.run.measure.length_budget_s and len(samples) < MOST_REPEATS
    ):
        synchronise()
        start = time.perf_counter()
        step()
        synchronise()
        samples.append(time.perf_counter() - start)
    how = f"median of {len(samples)} forward and backward passes, CLOCK_MONOTONIC"
    readings: dict[str, Reading] = {
        "layer_time_s": measured(statistics.median(samples), "s", how),
        "layer_peak_tensor_bytes": measure_peak_tensor_bytes(step, device=device),
        **energy.of_pass(step, len(samples)),
        "layer_hardware_flop": _predict_flop(mechanism, config, shape),
    }
    return Phase(readings=readings, samples={"layer_step_s": tuple(samples)})


def _predict_flop(mechanism: Mechanism, config: MechanismConfig, shape: AttentionShape) -> Quantity:
    cost = mechanism.cost(shape, config, 4)
    executed = cost.hardware_forward_flop + cost.hardware_backward_flop
    source = "closed form of matrix products of one pass, masked pairs that are computed and recomputation included"
    return predicted(executed, "flop", source)


def _layer_step(
    cell: CellSpec, mechanism: Mechanism, config: MechanismConfig, shape: AttentionShape
) -> Callable[[], None]:
    """One forward and backward pass of a fresh layer on a fixed random input."""
    torch.manual_seed(cell.seed)
    device = torch.device(cell.run.device)
    layer = mechanism.build(shape, config, cell.run.model.dropout).to(device)
    x = torch.randn(1, shape.tokens, shape.width, device=device)
    upstream = torch.randn(1, shape.tokens, shape.width, device=device)
    low = cell.run.training.precision == "bfloat16"

    def step() -> None:
        layer.zero_grad(set_to_none=True)
        leaf: Tensor = x.detach().requires_grad_(True)
        with torch.autocast(device.type, torch.bfloat16, enabled=low):
            y = layer(leaf)
        y.backward(upstream.to(y.dtype))

    return step


def _does_not_fit(mechanism: Mechanism, config: MechanismConfig, shape: AttentionShape, device: str) -> str:
    """Say why a length cannot be tried in main memory; the system kills what exhausts it, and with it the record.

    The forward pass saves ``saved_bytes``; the backward pass needs about twice as much again for the gradients.
    """
    if torch.device(device).type != "cpu":
        return ""
    needed = 3 * mechanism.cost(shape, config, 4).saved_bytes
    free = psutil.virtual_memory().available
    if needed <= free:
        return ""
    return f"about {needed / 2**30:.3g} GiB are needed at {shape.tokens} tokens, {free / 2**30:.3g} GiB are free"


def _absent_phase(reason: str) -> Phase:
    absent: dict[str, Quantity | Absent] = {"layer_time_s": Absent(reason), "layer_peak_tensor_bytes": Absent(reason)}
    return Phase(readings=absent)
