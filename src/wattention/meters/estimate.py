"""Energy where nothing can be read: a stated model, a range instead of one number, and the origin ``estimated``.

CPU, from CPU seconds (which are measured) and watts per logical core (which are not)::

    E = elapsed x cores x idle W a core  +  CPU seconds x (busy - idle) W a core
        ^ idle share: what the machine draws anyway  ^ what the work adds

The same sum with the low, central and high watts gives the range: all low, or all high, because the watts of one
machine are wrong the same way in every term. The range is no confidence interval; nothing random is in it. It covers
processor and memory as data sheets count them. An estimate knows time, not power, so no mechanism may be called more
frugal by it than its seconds say: in a ratio of two estimates on one machine the watts cancel as far as both keep the
same share of the cores busy, and what is left is the ratio of their CPU seconds.

GPU, only when asked for: E = elapsed x (idle share + (1 - idle share) x utilisation) x board power limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, Reading


@dataclass(frozen=True, kw_only=True)
class Range:
    """Low, central and high value."""

    low: float
    central: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.central <= self.high:
            raise UserError(
                "a range of watts is out of order",
                got=f"{self.low}, {self.central}, {self.high}",
                wanted="0 <= low <= central <= high",
            )


@dataclass(frozen=True, kw_only=True)
class CpuPower:
    """Watts of one logical core, idle and busy, and where the figures come from."""

    idle_w: Range
    busy_w: Range
    source: str

    def __post_init__(self) -> None:
        for name in ("low", "central", "high"):
            if getattr(self.idle_w, name) > getattr(self.busy_w, name):
                raise UserError(
                    "an idle core cannot draw more than a busy one",
                    got=f"{name}: idle {getattr(self.idle_w, name):g} W, busy {getattr(self.busy_w, name):g} W",
                )


IDLE_FRACTION = Range(low=0.0, central=0.21, high=0.5)
"""Idle over busy watts where only the busy ones are known: 0.74 / 3.5 of the server figures is 0.21."""

TDP_SHARE = Range(low=0.5, central=1.0, high=1.3)
"""Sustained draw of a fully busy processor over its TDP: light code stays far below, boost goes above for minutes."""

SERVER = CpuPower(
    idle_w=Range(low=0.4, central=0.74, high=1.2),
    busy_w=Range(low=1.9, central=3.5, high=6.0),
    source="server class: 0.74 W idle and 3.5 W busy a virtual core (Cloud Carbon Footprint, methodology: AWS "
    "average); TDP over hardware threads runs from 1.9 to 4.2 W (first to last decile of 91 EPYC and Xeon models of at "
    "least 64 threads, felixsteinke/cpu-spec-dataset, 2023); the margin up to 6 W and the idle range are assumed",
)
PERSONAL = CpuPower(
    idle_w=Range(low=0.1, central=0.6, high=2.0),
    busy_w=Range(low=1.5, central=4.0, high=16.0),
    source="laptop and desktop class: power over hardware threads runs from 1.75 W (Ryzen 7 7840U: 28 W, 16 threads) "
    "to 7.9 W (Core i9-13900K: 253 W of turbo, 32 threads), median 3.75 W of TDP (345 Ryzen and Core models of "
    "felixsteinke/cpu-spec-dataset, 2023); twice that for one boosted core and the idle range are assumed",
)
CLASSES = {"server": SERVER, "personal": PERSONAL}


def choose_cpu_power(
    *, watts_per_core: float | None = None, tdp_w: float | None = None, cores: int | None = None
) -> CpuPower:
    """Return the user's figures, or those of the class this machine seems to belong to (said in the source).

    Args:
        watts_per_core: watts of one busy logical core, measured or known by the user.
        tdp_w: the processor's thermal design power; it is shared out over ``cores`` logical cores.
        cores: logical cores; those of this machine when None.

    Errors: UserError for watts that are not positive, or both kinds at once.
    """
    count = cores if cores is not None else os.cpu_count() or 1
    if watts_per_core is not None and tdp_w is not None:
        raise UserError("two answers to one question", got="watts per core and TDP", do="give one of the two")
    given = watts_per_core if watts_per_core is not None else tdp_w
    if given is not None and not given > 0:
        raise UserError("watts of a processor", got=given, wanted="a positive number")
    if watts_per_core is not None:
        given_w = Range(low=watts_per_core, central=watts_per_core, high=watts_per_core)
        return _user_power(given_w, f"{watts_per_core:g} W a busy core, given by the user and taken as exact")
    if tdp_w is not None:
        share = tdp_w / count
        busy_w = Range(low=share * TDP_SHARE.low, central=share, high=share * TDP_SHARE.high)
        said = f"TDP of {tdp_w:g} W over {count} logical cores, given by the user"
        return _user_power(busy_w, f"{said}; busy {TDP_SHARE.low:.0%} to {TDP_SHARE.high:.0%} of it, assumed")
    from wattention.meters.environment import is_virtual_machine

    if is_virtual_machine() or count >= 32:
        return SERVER
    return PERSONAL


def _user_power(busy_w: Range, source: str) -> CpuPower:
    idle = Range(
        low=busy_w.low * IDLE_FRACTION.low,
        central=busy_w.central * IDLE_FRACTION.central,
        high=busy_w.high * IDLE_FRACTION.high,
    )
    return CpuPower(idle_w=idle, busy_w=busy_w, source=f"{source}; idle 0 to {IDLE_FRACTION.high:.0%} of it, assumed")


@dataclass(frozen=True, kw_only=True)
class EnergyEstimate:
    """Estimated joules: all of it, and the share the idle machine would have used in the same time."""

    energy_j: Reading
    idle_j: Reading
    above_idle_j: Reading


def estimate_cpu_energy(
    time_s: Reading, cpu_s: Reading, *, power: CpuPower, cores: int | None = None
) -> EnergyEstimate:
    """Estimate the energy of a window from its seconds and CPU seconds.

    Args:
        time_s, cpu_s: readings of a window.
        power: watts of a core, see :func:`choose_cpu_power`.
        cores: logical cores whose idle power is counted; those of this machine when None.
    """
    for reading in (time_s, cpu_s):
        if isinstance(reading, Absent):
            lacking = Absent(f"no estimate without time and CPU time: {reading.reason}")
            return EnergyEstimate(energy_j=lacking, idle_j=lacking, above_idle_j=lacking)
    assert isinstance(time_s, Quantity)
    assert isinstance(cpu_s, Quantity)
    count = cores if cores is not None else os.cpu_count() or 1
    names = ("low", "central", "high")
    idle = [time_s.value * count * getattr(power.idle_w, name) for name in names]
    # The idle share of a busy core is in the first term already.
    above = [cpu_s.value * (getattr(power.busy_w, name) - getattr(power.idle_w, name)) for name in names]
    whole = [a + b for a, b in zip(idle, above, strict=True)]
    share = idle[1] / whole[1] if whole[1] > 0 else 0.0
    source = (
        f"model: seconds x {count} cores x idle W + CPU seconds x (busy - idle) W; {power.source}; "
        f"range: its low and high watts; idle share {share:.0%}"
    )
    return EnergyEstimate(
        energy_j=_estimated(whole, source), idle_j=_estimated(idle, source), above_idle_j=_estimated(above, source)
    )


def estimate_gpu_energy(time_s: Reading, *, power_limit_w: float, utilisation: float) -> Reading:
    """Estimate a GPU's joules from its board power limit and its utilisation; only where the user asks for it.

    Errors: UserError for a utilisation outside 0 to 1 or a limit that is not positive.
    """
    if not 0 <= utilisation <= 1 or not power_limit_w > 0:
        got = f"utilisation {utilisation:g}, limit {power_limit_w:g} W"
        raise UserError("estimate of a GPU's energy", got=got, wanted="0 <= utilisation <= 1 and a positive limit")
    if isinstance(time_s, Absent):
        return Absent(f"no estimate without time: {time_s.reason}")
    idle = Range(low=0.05, central=0.12, high=0.25)
    joules = [
        time_s.value * power_limit_w * (share + (1 - share) * utilisation * at)
        for share, at in ((idle.low, 0.6), (idle.central, 0.85), (idle.high, 1.0))
    ]
    return _estimated(
        joules,
        f"model: seconds x limit x (idle share + (1 - idle share) x utilisation x load); limit {power_limit_w:g} W, "
        f"utilisation {utilisation:.0%}; idle share {idle.low:.0%} to {idle.high:.0%} and load 60 % to 100 %, assumed",
    )


def _estimated(joules: list[float], source: str) -> Quantity:
    low, central, high = joules
    # Less idle power leaves more above it, so the ends of a part may be in either order.
    return Quantity(
        value=central, unit="J", origin="estimated", source=source, low=min(joules), high=max(low, central, high)
    )
