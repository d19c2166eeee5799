"""A number never travels alone: value, unit, origin and source stay together until a renderer prints them.

Five verbs name the five origins a number can have:

========== ============================================== =========
origin     where it comes from                            verb
========== ============================================== =========
measured   an instrument read it                          measure\\_
counted    an executed program counted it                 count\\_
predicted  a closed form or a model computed it           predict\\_
bound      a theorem limits it                            bound\\_
estimated  a stand-in for an instrument that is missing   estimate\\_
========== ============================================== =========

Units are base units (s, J, W, byte, flop, word, token, bit); prefixes exist only in the report.
What could not be had is :class:`Absent` with a reason: never 0, never infinity, never a silent constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Origin = Literal["measured", "counted", "predicted", "bound", "estimated"]
ORIGINS: tuple[Origin, ...] = ("measured", "counted", "predicted", "bound", "estimated")


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """One number with its unit, origin and source, and an interval where one is known.

    ``low`` and ``high`` bound the value (a confidence interval of a measurement, or the range of an estimate;
    ``source`` says which).
    """

    value: float
    unit: str
    origin: Origin
    source: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        assert self.origin in ORIGINS, self.origin
        assert math.isfinite(self.value), f"{self.value} {self.unit} from {self.source} is not a finite number"

    def mapped(
        self, change: Callable[[float], float], *, unit: str, source: str, origin: Origin | None = None
    ) -> Quantity:
        """Return what an increasing function makes of the value and of both ends of its interval."""
        return Quantity(
            value=change(self.value),
            unit=unit,
            origin=origin or self.origin,
            source=source,
            low=None if self.low is None else change(self.low),
            high=None if self.high is None else change(self.high),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; an unknown interval is left out."""
        out: dict[str, Any] = {"value": self.value, "unit": self.unit, "origin": self.origin, "source": self.source}
        if self.low is not None:
            out["low"] = self.low
        if self.high is not None:
            out["high"] = self.high
        return out


@dataclass(frozen=True, slots=True)
class Absent:
    """A number that could not be had, and why."""

    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"absent": self.reason}


Reading = Quantity | Absent


def reading_from_json(data: dict[str, Any]) -> Reading:
    """Rebuild what :meth:`Quantity.to_json` or :meth:`Absent.to_json` wrote."""
    if "absent" in data:
        return Absent(str(data["absent"]))
    return Quantity(**data)


def measured(value: float, unit: str, source: str) -> Quantity:
    """A number that an instrument read."""
    return Quantity(value=value, unit=unit, origin="measured", source=source)


def counted(value: float, unit: str, source: str) -> Quantity:
    """A number that an executed program counted."""
    return Quantity(value=value, unit=unit, origin="counted", source=source)


def predicted(value: float, unit: str, source: str) -> Quantity:
    """A number that a closed form or a model computed."""
    return Quantity(value=value, unit=unit, origin="predicted", source=source)
