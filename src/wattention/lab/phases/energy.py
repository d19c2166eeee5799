"""Joules of every phase: from its own window where a counter can resolve it, else from a window made for it.

::

    build | IDLE | warm-up | train | evaluate | energy, energy_evaluate, ... | prefill | decode | ... | IDLE

An energy counter moves in steps, so a window shorter than the meter's least is not measurable; the work is then
repeated in a window of its own, ``energy_NAME``, until it is long enough. Work that happens once (building, compiling)
cannot be repeated and stays not measurable when it is short. The idle machine is watched twice, with the model built
and nothing running: what a cell draws beyond that is its net energy. Both cost seconds, and are spent only where a
counter can be read.

Where no counter can be read, a CPU gets an estimate of its training, and of every phase when the user told the watts of
a core; it is marked as such, with its range (meters/estimate.py). A GPU gets the reason.

Over several ranks all repeat the same work as often: after every chunk they agree on how long it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattention.core.quantities import Absent, Quantity, Reading, counted
from wattention.core.records import Phase
from wattention.lab.phases.stage import Stage
from wattention.meters.base import device_type
from wattention.meters.energy import needed_window_s
from wattention.meters.estimate import choose_cpu_power, estimate_cpu_energy
from wattention.meters.window import synchronise_of

MARGIN = 1.1
SETTLING = 0.1
"""Wait before an idle window, as a share of it: the counter's last step of the work would count as idling."""
CHUNK_S = 0.25
"""Work to queue between two looks at the clock: long enough that a GPU never waits for them."""
ONCE = "this work happens once in a process, so it is not repeated"
TRAINING = "energy"
"""The phase that holds the training's energy; that of another phase NAME is in ``energy_NAME``."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One repeatable piece of a phase: what does it, and what it makes.

    Args:
        do: does it once; None where it cannot be repeated.
        makes: name of the reading that counts its products, e.g. ``tokens``; empty where it only counts itself.
        each: how many of them once makes.
        note: what is in it that the phase did not do, for the source.
    """

    do: Callable[[], object] | None = None
    makes: str = ""
    each: float = 1
    note: str = ""


@dataclass(kw_only=True)
class EnergyWindows:
    """The windows that a cell opens for its energy alone.

    ``clock`` (seconds) and ``sleep`` are the machine's; tests put simulated ones in their place.
    """

    stage: Stage
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    needed_s: float | None = field(init=False)
    """The shortest window that every counter of every rank resolves, with a margin; None where none can be read."""

    def __post_init__(self) -> None:
        facts = self._counters()
        longest_s = max(self.stage.spread.gather(0.0 if facts is None else needed_window_s(facts) * MARGIN))
        self.needed_s = longest_s or None

    @property
    def repeats_phases(self) -> bool:
        """Whether windows are made for phases other than training."""
        return self.needed_s is not None and self.stage.cell.run.measure.phase_energy

    def watch_idle(self, name: str) -> None:
        """Measure the waiting machine as the phase ``idle_NAME``; nothing happens where no counter can be read."""
        needed = self.needed_s
        if needed is None or not self.repeats_phases:
            return
        self.sleep(needed * SETTLING)
        with self.stage.phase(f"idle_{name}"):
            self.sleep(needed)

    def of_training(self, step: Callable[[], object], tokens_per_step: int) -> None:
        """Leave the phase ``energy``: ``energy_j``, ``tokens`` and ``time_s`` of training steps."""
        self._resolve("train", TRAINING, Work(do=step, makes="tokens", each=tokens_per_step), always=True)

    def of_phase(self, name: str, work: Work) -> None:
        """Leave the phase ``energy_NAME``: ``energy_j``, ``time_s`` and what the work makes, per window."""
        self._resolve(name, f"energy_{name}", work, always=False)

    def of_pass(self, step: Callable[[], object], passes: int) -> dict[str, Reading]:
        """Return the energy of one pass of a layer: ``layer_energy_j``, its uncertainty in parts, and its seconds.

        Where no counter can be read: an estimate over ``passes`` passes if the user told the watts of a core, else the
        reason.
        """
        needed, measure = self.needed_s, self.stage.cell.run.measure
        if needed is None and (measure.cpu_watts_per_core is None or not self._on_cpu()):
            return {"layer_energy_j": self.stage.panel.meters.absent.get("energy_j", Absent("no energy meter"))}
        if needed is not None and not measure.phase_energy:
            return {"layer_energy_j": Absent("not asked for: measure.phase_energy is false")}
        with self.stage.phase("passes"):
            calls = self._repeat_for(needed, step) if needed is not None else _do(step, passes)
        own = self.stage.phases["passes"].readings
        if needed is None:
            found = self._estimate(self.stage.phases["passes"], Absent("no counter can be read"))
        else:
            parts = tuple(f"uncertainty_{part}_j" for part in ("window", "shared", "offset"))
            found = {name: own[name] for name in ("energy_j", *parts) if name in own}
        shares = {**found, "energy_time_s": own["time_s"]}
        return {f"layer_{name}": _share(q, calls) for name, q in shares.items() if name != "energy_counter_j"}

    def _resolve(self, name: str, into: str, work: Work, *, always: bool) -> None:
        own = self.stage.phases[name]
        energy = own.readings.get("energy_j", Absent("no energy meter"))
        told = self.stage.cell.run.measure.cpu_watts_per_core
        if self.needed_s is None:
            if self._on_cpu() and (always or told is not None):
                self._keep(into, own, self._estimate(own, energy))
            elif always:
                self._keep(into, own, {"energy_j": energy})
        elif isinstance(energy, Quantity):
            self._keep(into, own, _energies(own.readings))
        elif always or self.repeats_phases:
            self._repeat(into, own, work, energy)

    def _repeat(self, into: str, own: Phase, work: Work, energy: Absent) -> None:
        """Do the work again and again in one window until the counters resolve it."""
        if work.do is None:
            self._keep(into, own, {"energy_j": Absent(f"{energy.reason}; {ONCE}")})
            return
        needed = self.needed_s
        assert needed is not None
        with self.stage.phase(into):
            calls = self._repeat_for(needed, work.do)
        how = f"{calls} repeats for the energy counter{f', {work.note}' if work.note else ''}"
        made = {work.makes: counted(calls * work.each, work.makes.removesuffix("s"), how)} if work.makes else {}
        self.stage.add(into, {"repeats": counted(calls, "1", how), **made})

    def _repeat_for(self, seconds: float, do: Callable[[], object]) -> int:
        """Repeat for at least so long; the device is waited for in between, or its queue would hide the time."""
        synchronise = synchronise_of(self.stage.cell.run.device)
        calls, chunk, past_s = 0, 1, 0.0
        while past_s < seconds:
            started = self.clock()
            for _ in range(chunk):
                do()
            synchronise()
            calls += chunk
            took_s = max(self.stage.spread.gather(self.clock() - started))
            past_s += took_s
            if took_s < CHUNK_S:
                chunk *= 2
        return calls

    def _keep(self, into: str, own: Phase, energies: Mapping[str, Reading]) -> None:
        """Repeat what the phase's own window said, so that energy is found in one place."""
        missing = Absent("the window gave none")
        counts = {k: own.readings[k] for k in ("tokens", "prompts") if k in own.readings}
        readings = {**energies, "time_s": own.readings.get("time_s", missing), **counts}
        self.stage.phases[into] = Phase(readings=readings, flags=own.flags)

    def _estimate(self, own: Phase, why: Reading) -> dict[str, Reading]:
        power = choose_cpu_power(watts_per_core=self.stage.cell.run.measure.cpu_watts_per_core)
        missing = Absent("the window gave none")
        said = estimate_cpu_energy(
            own.readings.get("time_s", missing),
            own.readings.get("cpu_s", missing),
            power=power,
            cores=self.stage.spread.cores,
        )
        return {"energy_j": said.energy_j, "energy_above_idle_j": said.above_idle_j, "energy_counter_j": why}

    def _on_cpu(self) -> bool:
        return device_type(self.stage.cell.run.device) == "cpu"

    def _counters(self) -> dict[str, Any] | None:
        opened = self.stage.panel.meters.opened
        return next((one.instrument.facts for one in opened if one.meter.name == "energy"), None)


def _energies(readings: Mapping[str, Reading]) -> dict[str, Reading]:
    """The energies of a window, counters and samplers, with the parts of their uncertainty."""
    kinds = ("energy_", "sampled_energy_", "uncertainty_")
    return {name: reading for name, reading in readings.items() if name.startswith(kinds)}


def _do(step: Callable[[], object], times: int) -> int:
    for _ in range(times):
        step()
    return times


def _share(reading: Reading, of: int) -> Reading:
    """One of ``of`` equal shares of a reading."""
    if isinstance(reading, Absent):
        return reading
    source = f"one of {of} passes; {reading.source}"
    return reading.mapped(lambda value: value / of, unit=reading.unit, source=source)
