"""Grids of runs: axes declared in TOML, their product as points, one run folder a point under one sweep folder.

::

    [base]                                  # the fields of a run, as in compare --config
    mechanisms = ["baseline", "flash"]      # compared with each other at every point, inside its blocks
    [grid]                                  # one axis a key; the points are the product
    preset = ["tiny", "gpt2"]
    length = [256, 512]                     # tokens per sequence (model.context)
    batch = [2, 8]
    "training.learning_rate" = [1e-3, 3e-3] # any field of a run
    [[skip]]                                # points that match every key of an entry are left out
    preset = "gpt2"
    batch = 8

Mechanisms can be an axis too, as lists of lists: each entry is one comparison. A point's folder is an ordinary run, so
``wattention report SWEEP/*`` and ``compare --resume --out SWEEP/POINT`` work on it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattention.core.errors import UserError, unknown_name
from wattention.core.run_spec import RunSpec
from wattention.study.configure import DEFAULTS, SECTIONS, build_run_spec

AXES = {
    "mechanisms": "mechanisms",
    "preset": "preset",
    "length": "model.context",
    "batch": "training.batch",
    "precision": "training.precision",
    "steps": "training.steps",
    "seed": "seed",
    "device": "device",
    "blocks": "blocks",
}
"""Short names of axes, and the field of a run each one sets; any other field is written with its section."""

SAME_FOR_ALL = ("threads", "malloc")
"""Fields that the processes of this host share for a whole sweep; they belong into [base]."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep: its folder's name, what was set on each axis, and the whole specification."""

    name: str
    values: Mapping[str, Any]
    spec: RunSpec


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A sweep as declared, checked for names and shapes; points are made when they are asked for."""

    base: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]
    skip: tuple[Mapping[str, Any], ...] = ()

    def points(self, *, threads: int) -> Iterator[Point]:
        """Yield the points in the order of the axes, the last one fastest.

        Raises:
            UserError: a value does not fit its field; the point is named.
        """
        shown = [axis for axis, values in self.axes.items() if len(values) > 1]
        names: set[str] = set()
        for values in self._combinations():
            name = "_".join(f"{_short(axis)}-{_word(values[axis])}" for axis in shown) or "point"
            if name in names:
                raise UserError("two points of the grid have one name", got=name, do="write the axis' values apart")
            names.add(name)
            try:
                spec = build_run_spec([DEFAULTS, self.base, *_layers(values)], [], threads=threads)
            except UserError as error:
                raise UserError(f"the point {name} of the grid: {error.what}", **_rest(error)) from None
            yield Point(name=name, values=values, spec=spec)

    def _combinations(self) -> Iterator[dict[str, Any]]:
        for choice in itertools.product(*self.axes.values()):
            values = dict(zip(self.axes, choice, strict=True))
            if not any(all(values[axis] == value for axis, value in entry.items()) for entry in self.skip):
                yield values


def read_grid(data: Mapping[str, Any]) -> Grid:
    """Check the parsed TOML of a sweep.

    Raises:
        UserError: an unknown table or axis, an axis that is not a list, a repeated value, a skip that names no axis.
    """
    for table in data:
        if table not in ("base", "grid", "skip"):
            raise unknown_name("table of a sweep", table, ("base", "grid", "skip"))
    axes = {axis: _axis(axis, values) for axis, values in dict(data.get("grid", {})).items()}
    if not axes:
        raise UserError("the sweep has no grid", wanted="a table [grid] with an axis, e.g. length = [256, 512]")
    for entry in data.get("skip", ()):
        for axis in entry:
            if axis not in axes:
                raise unknown_name("axis in skip", axis, axes)
    return Grid(base=dict(data.get("base", {})), axes=axes, skip=tuple(data.get("skip", ())))


def _axis(axis: str, values: Any) -> tuple[Any, ...]:
    section, dot, _ = axis.partition(".")
    if axis in SAME_FOR_ALL:
        raise UserError(f"{axis} cannot differ within a sweep", got=axis, do="set it in [base]")
    if axis not in AXES and not (dot and section in SECTIONS):
        raise unknown_name("axis of the grid", axis, (*AXES, *(f"{section}.FIELD" for section in SECTIONS)))
    if not isinstance(values, list) or not values:
        raise UserError(f"the axis {axis} is no list", got=repr(values), wanted=f"a list, e.g. {axis} = [...]")
    if axis == "mechanisms" and not all(isinstance(value, list) for value in values):
        raise UserError(
            "the axis mechanisms lists comparisons",
            got=repr(values),
            wanted='lists of mechanisms, e.g. [["baseline", "flash"], ["baseline", "mla"]]',
            do="put mechanisms = [...] into [base] to compare them with each other at every point",
        )
    for place, value in enumerate(values):
        if value in values[:place]:
            raise UserError(f"the axis {axis} repeats a value", got=repr(value))
    return tuple(values)


def _layers(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    layers = []
    for axis, value in values.items():
        layer: Any = value
        for key in reversed(AXES.get(axis, axis).split(".")):
            layer = {key: layer}
        layers.append(layer)
    return layers


def _short(axis: str) -> str:
    return axis.rpartition(".")[2]


def _word(value: Any) -> str:
    """Write a value so that it can stand in a folder's name."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(_word(one) for one in value)
    return re.sub(r"[^\w.+-]+", "-", str(value)).strip("-.") or "empty"


def _rest(error: UserError) -> dict[str, Any]:
    return {"got": error.got, "wanted": error.wanted, "do": error.do}


def sweep_json(grid: Grid) -> dict[str, Any]:
    """Return what is stored of a sweep, to know it again on resume."""
    return {"base": dict(grid.base), "grid": {k: list(v) for k, v in grid.axes.items()}, "skip": list(grid.skip)}


def point_folders(sweep: Path, points: Sequence[Point]) -> dict[str, Path]:
    """Return the run folder of every point, by its name."""
    return {point.name: sweep / point.name for point in points}
