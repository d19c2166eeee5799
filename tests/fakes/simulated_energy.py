"""A device of known energy: it draws what the test says, and its counter shows that in steps, times a gain."""

from __future__ import annotations

import math

from wattention.core.quantities import Quantity, predicted
from wattention.core.records import CellKey, CellRecord
from wattention.core.run_spec import CellSpec
from wattention.lab.phases.energy import EnergyWindows
from wattention.lab.phases.stage import Stage
from wattention.meters.base import METERS, Interpretation, Meter, OpenedMeters, OpenMeter
from wattention.meters.window import Panel
from wattention.study.configure import DEFAULTS, build_run_spec

CLASS = 0.03
"""Relative 95 % half-width of the sensor's gain."""


class Device:
    """Seconds and joules that pass when the test says so; ``seen_j`` is what its counter shows."""

    def __init__(self, *, step_s=0.1, gain=1.0, phase_s=0.0, idle_w=20.0):
        self.step_s, self.gain, self.idle_w = step_s, gain, idle_w
        self.now_s, self.true_j, self.slept_s = phase_s, 0.0, 0.0
        self.seen_j, self.samples = 0.0, []

    def draw(self, seconds, watts):
        end = self.now_s + seconds
        last = math.floor(end / self.step_s) * self.step_s  # the counter's last step in this stretch
        if last > self.now_s:
            self.seen_j = self.gain * (self.true_j + (last - self.now_s) * watts)
        self.samples.append((int(self.now_s * 1e9) + 1, watts))
        self.now_s, self.true_j = end, self.true_j + seconds * watts

    def sleep(self, seconds):
        self.slept_s += seconds
        self.draw(seconds, self.idle_w)

    def monotonic_ns(self):
        return int(self.now_s * 1e9)

    def wall_ns(self):
        return self.monotonic_ns()


class _Counter:
    def __init__(self, device):
        self.device = device
        about = {"step_s": device.step_s, "step_j": 30.0, "in_total": True, "wrap_j": None}
        self.facts = {"domains": {"gpu0": {"device": "imaginary", "counter": "counter", **about}}, "missing": {}}

    def arm(self):
        pass

    def start(self):
        return {"j": self.device.seen_j, "at_ns": self.device.monotonic_ns(), "count": len(self.device.samples)}

    stop = start

    def close(self):
        pass


def _interpret(facts, before, after, interval):
    value = after["j"] - before["j"]
    if interval.elapsed_s < 5:
        reading = METERS.load("energy").absent(f"not measurable: the window lasted {interval.elapsed_s:.3g} s")
        return Interpretation(readings=reading)
    window = value / interval.elapsed_s * facts["domains"]["gpu0"]["step_s"]
    parts = {"window": window, "shared": CLASS * value, "offset": 0.0}
    half = math.hypot(window, CLASS * value)
    energy = Quantity(value=value, unit="J", origin="measured", source="gpu0", low=value - half, high=value + half)
    found = {f"uncertainty_{name}_j": predicted(size, "J", "simulated") for name, size in parts.items()}
    return Interpretation(readings={"energy_j": energy, "energy_gpu0_j": energy, **found})


class _Sampler(_Counter):
    def __init__(self, device):
        super().__init__(device)
        self.facts = {"domain": "gpu0", "sensor": "imaginary", "period_s": 0.05}
        self.first = 0

    def start(self):
        self.first = len(self.device.samples)
        return {"at_ns": 0}

    def stop(self):
        return {"samples": [list(sample) for sample in self.device.samples[self.first :]]}


def _meter(name, interpret, closeness):
    return Meter(
        name=name, title=name, readings=("energy_j",), unit="J", kind="counter", origin="measured",
        available=lambda device: None, open=_Counter, interpret=interpret, closeness=closeness,
    )  # fmt: skip


def panel_of(device):
    """A panel over the device's counter and its power sampler."""
    sampler = _meter("sampled_power", lambda *_: Interpretation(readings={}), 60)
    opened = (
        OpenMeter(meter=sampler, instrument=_Sampler(device)),
        OpenMeter(meter=_meter("energy", _interpret, 70), instrument=_Counter(device)),
    )
    return Panel(OpenedMeters(opened=opened), clock=device, simulated=True)


def cell_spec(label="a", block=0, kind="train", **measure):
    run = build_run_spec(
        [DEFAULTS, {"mechanisms": [{"label": label, "source": "sdpa"}], "measure": {"phase_energy": True, **measure}}],
        [],
        threads=1,
    )
    return CellSpec(run=run, key=CellKey(kind=kind, mechanism=label, block=block), order=0)


def stage_of(device, cell=None, panel=None):
    cell = cell or cell_spec()
    return Stage(cell=cell, panel=panel or panel_of(device), progress=lambda **_: None)


def windows_of(device, stage):
    return EnergyWindows(stage=stage, clock=lambda: device.now_s, sleep=device.sleep)


def record_of(stage):
    key = stage.cell.key
    return CellRecord(key=key, order=0, status="ok", started_utc="", phases=stage.phases, simulated=True)
