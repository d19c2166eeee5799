"""How far a kind of sensor may be off for every window alike: data, with who says so.

No device states the accuracy of its own energy counter at run time, so a class stands in for the calibration nobody
made. An error of this kind is *shared*: it belongs to the board, all windows of one host have it alike, and a constant
factor cancels in their ratios. Each class is one row::

    shared error <= max(gain x E, offset_w x elapsed)        at 95 %, as if normally distributed

``basis`` says how good the row is: *vendor* and *literature* name a document that states the figure; *assumed* means
that the documents named describe the sensor, and give no figure we can quote: the figure is our caution. What a source
is said to find was read there, in its abstract or in a published review of it.

A row with ``averaging_s`` above 0 is a power sensor whose value lags by that much: at the ends of a window it shows
power from before (see uncertainty.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Basis = Literal["vendor", "literature", "assumed"]


@dataclass(frozen=True, kw_only=True)
class SensorClass:
    """One kind of sensor.

    Args:
        gain: limit of the relative error that all windows of a host share, at 95 %.
        offset_w: limit of the constant error in watts, at 95 %; the larger of the two holds.
        limit_w: no device of this kind draws more; a reading above it is a fault.
        averaging_s: for power sensors: the time its value looks back.
        basis: who states the figures.
        source: the documents.
    """

    name: str
    gain: float
    offset_w: float
    limit_w: float
    averaging_s: float = 0.0
    basis: Basis
    source: str

    @property
    def title(self) -> str:
        """The class in a few words, for the source of a reading."""
        return f"sensor class {self.name}: {self.gain:.0%} or {self.offset_w:g} W ({self.basis})"


_NVML = (
    "NVML API reference, nvmlDeviceGetPowerUsage: within 5 % of the draw, stated for Fermi and Kepler and not restated "
    "for later boards; nvmlDeviceGetTotalEnergyConsumption states none. Yang, Adamek and Armour, arXiv 2312.02741 "
    "(70 boards against a power meter): A100 and H100 sample a quarter of the run time; the error of steady power is "
    "proportional, about 5 %, where NVIDIA states 5 W, so the larger of both is taken"
)
_INTEL = (
    "Khan et al., 2018 (RAPL in Action): since Haswell the readings follow plug power closely, no limit stated; "
    "Hackenberg et al., 2015, doi 10.1109/IPDPSW.2015.70: with Haswell-EP from modelling to actual measurement"
)

_CLASSES = (
    SensorClass(name="nvml", gain=0.05, offset_w=5.0, limit_w=5_000.0, basis="literature", source=_NVML),
    SensorClass(
        name="nvml_instant",
        gain=0.05,
        offset_w=5.0,
        limit_w=5_000.0,
        averaging_s=0.1,
        basis="literature",
        source=f"{_NVML}; the value is renewed about every 0.1 s",
    ),
    SensorClass(
        name="nvml_averaged",
        gain=0.05,
        offset_w=5.0,
        limit_w=5_000.0,
        averaging_s=1.0,
        basis="vendor",
        source="NVML API reference: on Ampere (except GA100) and newer, power averaged over 1 s; accuracy as nvml",
    ),
    SensorClass(
        name="rocm",
        gain=0.10,
        offset_w=5.0,
        limit_w=5_000.0,
        basis="assumed",
        source="AMD SMI reference, amdsmi_get_energy_count: states a resolution and no accuracy",
    ),
    SensorClass(name="rapl_intel", gain=0.05, offset_w=1.0, limit_w=1_000.0, basis="assumed", source=_INTEL),
    SensorClass(
        name="rapl_amd",
        gain=0.15,
        offset_w=2.0,
        limit_w=1_000.0,
        basis="assumed",
        source="Schoene et al., 2021, arXiv 2108.00808, section VII, on Zen 2: counters that are modelled, not "
        "measured, see memory in part and do not see what operands cost",
    ),
    SensorClass(
        name="rapl_dram",
        gain=0.10,
        offset_w=2.0,
        limit_w=500.0,
        basis="assumed",
        source="Desrochers, Paradis and Weaver, 2016 (MEMSYS): follows the trend with a constant offset in watts, best "
        "under load, measured on servers and modelled on desktops",
    ),
    SensorClass(
        name="soc",
        gain=0.15,
        offset_w=1.0,
        limit_w=1_000.0,
        basis="assumed",
        source="systems on a chip (Apple, Jetson): no accuracy stated for the counters; powermetrics(1) of Apple: "
        "values 'are estimated and may be inaccurate', not to be used to compare devices",
    ),
    SensorClass(
        name="unknown",
        gain=0.15,
        offset_w=5.0,
        limit_w=5_000.0,
        averaging_s=1.0,
        basis="assumed",
        source="a sensor of no known kind, or a recording made before sensors had classes",
    ),
)
SENSOR_CLASSES: dict[str, SensorClass] = {one.name: one for one in _CLASSES}


def find_class(name: str | None) -> SensorClass:
    """Return the class of this name; whatever has none is ``unknown``, the most cautious row."""
    return SENSOR_CLASSES.get(name or "unknown", SENSOR_CLASSES["unknown"])
