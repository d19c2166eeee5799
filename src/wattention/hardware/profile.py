"""A device as data: memory levels, peak rates and power, every number with its unit and its source.

A profile is one TOML file of ``profiles/`` (or the user's own). A number is a table ``{ value, unit, source }`` in base
units (byte, byte/s, flop/s, W); a number without a source, an unknown key or a memory hierarchy that does not grow from
the inside out is refused. What is not known is left out, never guessed; a figure written down from memory says
"recalled, not checked" in its source, and whoever prints it can ask for :attr:`Number.recalled`.

The levels run from the innermost to the outermost. ``capacity`` is what ONE holder of the level can use for its own
working set (one warp's registers, one block's shared memory, a core's L1), which is what the two-level memory model
calls fast memory; ``count`` says how many such holders the device has.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from wattention.core.errors import UserError, unknown_name

RECALLED = "recalled, not checked"
Unit = Literal["byte", "byte/s", "flop/s", "W", "s", "J/flop", "J/byte", "count", "version"]


HOW_TO_ADD_A_LEVEL = (
    'add [[levels]] with name, holder and capacity = { value = ..., unit = "byte", source = "..." }, '
    "from the innermost level to the main memory"
)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Number(_Frozen):
    """One figure of a device, in base units, and where it was read; ``low`` and ``high`` where a range is known."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: Unit
    source: Annotated[str, Field(min_length=8)]
    low: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    high: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _range_holds_value(self) -> Number:
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        if not low <= self.value <= high:
            raise ValueError(f"{self.value:g} lies outside of its own range {low:g}..{high:g}")
        return self

    @property
    def recalled(self) -> bool:
        """Whether the figure was written down from memory and still awaits a look at its source."""
        return RECALLED in self.source


def _in_unit(unit: Unit, number: Number | None, where: str) -> None:
    if number is not None and number.unit != unit:
        raise ValueError(f"{where} is in {number.unit}, wanted {unit}")


class MemoryLevel(_Frozen):
    """One level of the memory hierarchy, seen by the one that works in it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")]
    holder: Annotated[str, Field(min_length=1)]
    capacity: Number
    count: Number | None = None
    bandwidth: Number | None = None
    """Bytes per second between this level and the one inside it, summed over the whole device."""
    energy: Number | None = None
    """Joules to move one byte between this level and the one inside it."""

    @model_validator(mode="after")
    def _units(self) -> MemoryLevel:
        _in_unit("byte", self.capacity, f"capacity of {self.name}")
        _in_unit("count", self.count, f"count of {self.name}")
        _in_unit("byte/s", self.bandwidth, f"bandwidth of {self.name}")
        _in_unit("J/byte", self.energy, f"energy of {self.name}")
        return self

    @property
    def capacity_bytes(self) -> int:
        """Bytes one holder can use."""
        return int(self.capacity.value)

    def words(self, word_bytes: int) -> int:
        """Words of ``word_bytes`` bytes that one holder can use."""
        return self.capacity_bytes // word_bytes


class OperatorTimings(_Frozen):
    """Seconds of one operator, measured on the machine itself over sizes: what ``wattention calibrate`` writes.

    A point is the sizes named by ``axes`` and the seconds. The smallest point is what the operator costs when it has
    next to nothing to do.
    """

    operator: Annotated[str, Field(min_length=1)]
    dtype: Annotated[str, Field(min_length=1)]
    operands: Literal["cache", "main"] = "cache"
    """Where they lay before: in the outer caches, or in main memory alone."""
    axes: Annotated[tuple[str, ...], Field(min_length=1)]
    points: Annotated[tuple[tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], ...], Field(min_length=1)]
    source: Annotated[str, Field(min_length=8)]

    @model_validator(mode="after")
    def _points_fit_axes(self) -> OperatorTimings:
        if any(len(point) != len(self.axes) + 1 for point in self.points):
            raise ValueError(
                f"points of {self.operator} want {len(self.axes)} sizes ({', '.join(self.axes)}) and seconds"
            )
        return self


class HardwareProfile(_Frozen):
    """A device: its memory hierarchy from the inside out, peak rates by dtype and power."""

    schema_version: Literal[1]
    title: Annotated[str, Field(min_length=3)]
    kind: Literal["gpu", "cpu", "tpu"]
    vendor: Annotated[str, Field(min_length=2)]
    compute_capability: Number | None = None
    """Of a CUDA board: which kernels can run there; the newest where it is not told."""
    levels: tuple[MemoryLevel, ...]
    peak: dict[str, Number] = {}
    """Dense peak rate by dtype of the operands, accumulators in float32; no sparsity."""
    flop_energy: dict[str, Number] = {}
    """Joules of one floating-point operation by dtype, without the movement of its operands."""
    launch_overhead: Number | None = None
    """Seconds that starting one operator costs when it has nothing to do."""
    launch_overhead_inference: Number | None = None
    """The same where no graph is built for a backward pass; that of training where it is not told."""
    idle_power: Number | None = None
    power_limit: Number | None = None
    timings: tuple[OperatorTimings, ...] = ()
    """Operators timed on the machine itself; they take the place of peak rates and bandwidths."""
    conditions: dict[str, str] = {}
    """Under which the timings hold: threads, allocator, versions."""

    @model_validator(mode="after")
    def _consistent(self) -> HardwareProfile:
        _in_unit("version", self.compute_capability, "compute_capability")
        _in_unit("W", self.idle_power, "idle_power")
        _in_unit("W", self.power_limit, "power_limit")
        for dtype, rate in self.peak.items():
            _in_unit("flop/s", rate, f"peak of {dtype}")
        for dtype, cost in self.flop_energy.items():
            _in_unit("J/flop", cost, f"flop_energy of {dtype}")
        _in_unit("s", self.launch_overhead, "launch_overhead")
        _in_unit("s", self.launch_overhead_inference, "launch_overhead_inference")
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError(f"levels with one name: {names}")
        if len(self.levels) < 2:
            has = f"only {names[0]}" if names else "none"
            raise ValueError(f"a fast level or the main memory is missing, there is {has}: {HOW_TO_ADD_A_LEVEL}")
        for inner, outer in pairwise(self.levels):
            if inner.capacity.value >= outer.capacity.value:
                raise ValueError(f"levels must grow from the inside out: {inner.name} is not smaller than {outer.name}")
        rated = [(level.name, level.bandwidth.value) for level in self.levels if level.bandwidth is not None]
        for (inner_name, inner_rate), (outer_name, outer_rate) in pairwise(rated):
            if inner_rate < outer_rate:
                raise ValueError(f"bandwidth must fall from the inside out: {inner_name} is slower than {outer_name}")
        if self.idle_power and self.power_limit and self.idle_power.value >= self.power_limit.value:
            raise ValueError("idle_power is not below power_limit")
        return self

    @property
    def main_memory(self) -> MemoryLevel:
        """The outermost level, which holds the tensors."""
        return self.levels[-1]

    @property
    def fast_levels(self) -> tuple[MemoryLevel, ...]:
        """Every level that can be the fast memory of a kernel: all but the main memory."""
        return self.levels[:-1]

    def level(self, name: str) -> MemoryLevel:
        """The level called ``name``, in any case.

        Raises:
            UserError: the profile has no such level; says which it has, and how to supply another.
        """
        for level in self.levels:
            if level.name.lower() == name.lower():
                return level
        known = [level.name for level in self.levels]
        error = unknown_name(f"memory level of {self.title}", name, known)
        do = f"{error.do}; to supply a level, copy the profile to a file of your own and {HOW_TO_ADD_A_LEVEL}"
        raise UserError(error.what, got=error.got, wanted=error.wanted, do=do)

    def numbers(self) -> tuple[tuple[str, Number], ...]:
        """Every figure of the profile beside its place in the file, in the file's order."""
        found: list[tuple[str, Number | None]] = [
            (name, getattr(self, name))
            for name in (
                "compute_capability", "power_limit", "idle_power", "launch_overhead", "launch_overhead_inference",
            )
        ]  # fmt: skip
        for level in self.levels:
            found += [
                (f"{level.name} {name}", getattr(level, name)) for name in ("capacity", "count", "bandwidth", "energy")
            ]
        found += [(f"peak {dtype}", rate) for dtype, rate in self.peak.items()]
        found += [(f"flop_energy {dtype}", cost) for dtype, cost in self.flop_energy.items()]
        return tuple((place, number) for place, number in found if number is not None)


def read_profile(path: Path) -> HardwareProfile:
    """Read one profile file; every fault of the file is named with its key."""
    import tomllib

    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError("cannot read the hardware profile", got=path, wanted="an existing TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"the hardware profile {path.name} is not TOML", got=error, do="mend the file") from error
    try:
        return HardwareProfile.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'profile'}: {e['msg']}" for e in error.errors())
        raise UserError(
            f"the hardware profile {path.name} is not valid",
            got=faults,
            wanted="known keys only, and every number as { value, unit, source }",
        ) from error
