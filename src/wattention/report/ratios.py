"""A ratio and its interval as analysis finds it, made a number with unit, origin and source, and a cell."""

from __future__ import annotations

from typing import Protocol

from wattention.core.quantities import Origin, Quantity
from wattention.report.document import Cell
from wattention.report.units import format_interval


class Interval(Protocol):
    """A value and the ends of its interval, None where it has none; every estimate and ratio of analysis is one."""

    @property
    def value(self) -> float:
        """The estimate itself."""

    @property
    def low(self) -> float | None:
        """The lower end."""

    @property
    def high(self) -> float | None:
        """The upper end."""


class Ratio(Interval, Protocol):
    """An interval of one mechanism's number over another's, and whether it proves a difference."""

    @property
    def tie(self) -> bool:
        """No difference is proved."""


def ratio_of(ratio: Interval, source: str, *, origin: Origin = "measured") -> Quantity:
    """Return the ratio as a number that says where it comes from."""
    return Quantity(value=ratio.value, unit="ratio", origin=origin, source=source, low=ratio.low, high=ratio.high)


def ratio_text(ratio: Ratio) -> str:
    """Return ``0.82 [0.80, 0.84]``, ``1.01 [0.97, 1.05] tie``, or ``0.82`` where one block tells of no interval."""
    text = format_interval(ratio.value, ratio.low, ratio.high)
    return f"{text} tie" if ratio.tie and ratio.low is not None else text


def ratio_cell(ratio: Ratio, source: str, *, origin: Origin = "measured") -> Cell:
    """Return the ratio in words with the number behind it."""
    return Cell(content=ratio_text(ratio), number=ratio_of(ratio, source, origin=origin))
