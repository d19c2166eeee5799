"""What an instrument is: one file with one frozen record ``METER``, and the panel that opens several of them.

An instrument yields raw samples, before and after the work; a pure function turns the pair into readings. Because
interpretation never touches a device, a recorded pair of samples gives the same readings anywhere (see replay.py)::

    meter.open("cpu") -> instrument      facts that do not change: names, limits, the size of a counter's step
    instrument.arm()                     reset what has to be reset (peaks), before anything is read
    instrument.start(), .stop()          one raw sample each, JSON-able, as cheap as the device allows
    meter.interpret(facts, before, after, interval) -> readings and flags

Three kinds of instrument: a *counter* only grows, and the window is a difference of two reads (CPU seconds, joules);
a *gauge* is the state at an instant (a temperature); a *peak* is a high-water mark, reset when the window is armed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from wattention.core.catalog import Catalog
from wattention.core.quantities import Absent, Origin, Reading

Kind = Literal["counter", "gauge", "peak"]
Sample = dict[str, Any]
"""What one read of an instrument returned: plain JSON values."""
SIMULATED = "simulated: "
"""How the source of a reading begins that no instrument of this machine gave."""
Facts = dict[str, Any]
"""What an instrument knows once, when it opens: plain JSON values."""


class MeterError(Exception):
    """An instrument could not be opened or read; the reading becomes absent with this message as its reason."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A typed warning about a window: the numbers stand, and a reader has to know this beside them."""

    kind: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Return the JSON form."""
        return {"kind": self.kind, "message": self.message}


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The two readings of the monotonic clock around the work."""

    start_ns: int
    end_ns: int

    @property
    def elapsed_s(self) -> float:
        """Seconds between the two readings."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, kw_only=True)
class Interpretation:
    """What a pair of samples says."""

    readings: dict[str, Reading]
    flags: tuple[Flag, ...] = ()


class Instrument(Protocol):
    """An opened meter. Every method but :meth:`close` may raise :class:`MeterError` or ``OSError``."""

    facts: Facts

    def arm(self) -> None:
        """Reset high-water marks; called once before a window, outside everything timed."""

    def start(self) -> Sample:
        """Read before the work; what matters most is read last, next to the clock."""

    def stop(self) -> Sample:
        """Read after the work; what matters most is read first, next to the clock."""

    def close(self) -> None:
        """Give the device back."""


@dataclass(frozen=True, kw_only=True)
class Meter:
    """All facts of one kind of instrument.

    Args:
        name: the file's name.
        title: what people call it.
        readings: the names it always answers for, a quantity or absent with the reason.
        unit: base unit of its main reading.
        kind: counter, gauge or peak.
        origin: class of origin of its numbers.
        available: device -> None, or why it cannot be used there and how to change that.
        open: device -> the opened instrument.
        interpret: (facts, before, after, interval) -> readings and flags; pure.
        derive: readings of the whole window -> further ones that compare this meter with another; pure.
        closeness: meters are read in rising order before the work and in falling order after it, so the one with the
            highest number stands next to the clock.
        gpu_only: True where a meter has nothing to say of work on the CPU.
        default: False where it is used only when asked for by name.
    """

    name: str
    title: str
    readings: tuple[str, ...]
    unit: str
    kind: Kind
    origin: Origin
    available: Callable[[str], Absent | None]
    open: Callable[[str], Instrument]
    interpret: Callable[[Facts, Sample, Sample, Interval], Interpretation]
    derive: Callable[[Mapping[str, Reading]], Interpretation] | None = None
    closeness: int = 0
    gpu_only: bool = False
    default: bool = True

    def absent(self, reason: str) -> dict[str, Reading]:
        """Return every reading of this meter as absent for one reason."""
        return dict.fromkeys(self.readings, Absent(reason))


@dataclass(frozen=True, kw_only=True)
class OpenMeter:
    """A meter together with the instrument it opened."""

    meter: Meter
    instrument: Instrument


@dataclass(frozen=True, kw_only=True)
class OpenedMeters:
    """The meters that opened on a device, and why the others did not."""

    opened: tuple[OpenMeter, ...]
    absent: Mapping[str, Reading] = field(default_factory=dict)

    def close(self) -> None:
        """Give all devices back."""
        for one in self.opened:
            one.instrument.close()


METERS: Catalog[Meter] = Catalog(
    kind="meter",
    package="wattention.meters",
    export="METER",
    record=Meter,
    not_plugins=frozenset(
        {"base", "window", "replay", "environment", "kernels", "tensor_memory", "estimate", "survey", "simulated"}
        | {"process_tree", "profiler", "power_process", "zeus_layer", "nvml_direct", "sensor_class", "uncertainty"}
        | {"selftest", "selftest_checks", "selftest_load", "selftest_rig", "square_wave"}
    ),
)


def device_type(device: str) -> str:
    """Return ``cuda`` of ``cuda:1``."""
    return device.partition(":")[0]


def is_cuda(device: str) -> bool:
    """Whether a device string names a GPU of torch's CUDA (or ROCm) back end."""
    return device_type(device) == "cuda"


def open_meters(device: str, names: Sequence[str] | None = None) -> OpenedMeters:
    """Open the meters that work on a device; the others answer with the reason.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:1``.
        names: meters to open; None opens every default one of the folder.

    Errors:
        UserError for a name that no meter has.
    """
    asked = [METERS.load(name) for name in (METERS.names() if names is None else names)]
    opened: list[OpenMeter] = []
    absent: dict[str, Reading] = {}
    for meter in asked:
        if names is None and not meter.default:
            continue
        missing = meter.available(device)
        if missing is not None:
            absent.update(meter.absent(missing.reason))
            continue
        try:
            opened.append(OpenMeter(meter=meter, instrument=meter.open(device)))
        except (MeterError, OSError) as error:
            absent.update(meter.absent(f"{meter.name} did not open: {error}"))
    opened.sort(key=lambda one: one.meter.closeness)
    return OpenedMeters(opened=tuple(opened), absent=absent)
