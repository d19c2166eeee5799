"""A run on a simulated device with an energy counter and a power sampler: idle windows, phases, lengths, traces."""

from __future__ import annotations

from dataclasses import replace

from fakes.report_run import FullLauncher
from fakes.simulated_energy import Device, record_of, stage_of, windows_of
from fakes.study import Silent
from wattention.core.quantities import counted
from wattention.lab.phases.energy import Work
from wattention.lab.phases.power_trace import bound_traces
from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder

SPEED = {"baseline": 1.0, "flash": 0.5, "sdpa": 0.52}
WATTS = {"baseline": 250.0, "flash": 290.0, "sdpa": 280.0}


class MeasuringLauncher(FullLauncher):
    """Fakes cells as its base does, with energy as the laboratory measures it on a device of known power."""

    def run(self, cell, **options):
        record = super().run(cell, **options)
        if record.status != "ok" or cell.key.kind == "gate":
            return record
        speed = SPEED.get(cell.key.mechanism, 0.8) * (1 + 0.01 * cell.key.block)
        watts = WATTS.get(cell.key.mechanism, 200.0)
        device = Device(idle_w=60.0)
        stage = stage_of(device, cell)
        windows = windows_of(device, stage)
        if cell.key.kind == "lengths":
            return self._lengths(record, device, windows, speed, watts)
        with stage.phase("build"):
            device.draw(1.5, 90)
        windows.watch_idle("before")
        with stage.phase("train"):
            for step in range(400):
                device.draw(0.1 * speed, watts * (1 + 0.05 * ((step * 7919) % 13 - 6) / 6))
        stage.add("train", {"tokens": counted(40_000, "token", "plan")})
        windows.of_training(lambda: None, 100)
        for name, made, each, power in (
            ("evaluate", "targets", 1000, 0.8 * watts),
            ("prefill", "prompts", 1, 0.7 * watts),
            ("decode", "tokens", 32, 0.4 * watts),
        ):
            with stage.phase(name):
                device.draw(0.3 * speed, power)
            windows.of_phase(name, Work(do=lambda power=power: device.draw(0.3 * speed, power), makes=made, each=each))
        windows.of_phase("build", Work())
        windows.watch_idle("after")
        phases = dict(record.phases)
        for name, phase in bound_traces(record_of(stage).phases).items():
            old = phases.get(name)
            known = phase if name.startswith(("energy", "idle")) or old is None else replace(
                old, samples={**old.samples, **phase.samples}
            )  # fmt: skip
            phases[name] = known
        return replace(record, phases=phases, simulated=True)

    def _lengths(self, record, device, windows, speed, watts):
        windows.watch_idle("before")
        phases = {name: phase for name, phase in windows.stage.phases.items() if name.startswith("idle_")}
        for name, phase in record.phases.items():
            tokens = int(name)
            seconds = 1e-5 * tokens + (4e-8 * tokens**2 if record.key.mechanism == "baseline" else 5e-6 * 256 * speed)
            found = windows.of_pass(lambda seconds=seconds: device.draw(seconds, watts), 3)
            phases[name] = replace(phase, readings={**phase.readings, **found})
        return replace(record, phases=phases, simulated=True)


def energy_run(folder, labels=("baseline", "flash", "sdpa"), *, blocks=2, carbon=None):
    """Write a finished run with measured energy and return it."""
    measure = {"lengths": (256, 512, 1024, 2048)} | ({"carbon": carbon} if carbon else {})
    mechanisms = [{"label": label, "source": "sdpa"} for label in labels]
    layers = [DEFAULTS, {"mechanisms": mechanisms, "measure": {"phase_energy": True, **measure}, "blocks": blocks}]
    spec = build_run_spec(layers, [], threads=1)
    return run_comparison(RunFolder(folder), spec, MeasuringLauncher(), Silent(), resume=False)
