"""The best segment length: where a function of positive integers that rises, then falls, is highest.

Three points around the maximum are narrowed by the vertex of the parabola through them, or by halving the wider side
where the parabola does not close in fast enough. Ends at neighbours, or at a distance that changes the value by less
than 1e-14 of itself. Some 15 values where halving alone takes twice the binary digits of the answer.
Source: Brent 1973, Algorithms for Minimization without Derivatives, chapter 5.
"""

from __future__ import annotations

from collections.abc import Callable

_FINEST_BITS = 24
"""Lengths are told apart down to this power of 1/2 of themselves: near a maximum the value changes by its square."""


def highest(value: Callable[[int], float], *, near: int, reach: int) -> int:
    """Return the integer from 1 on whose value is highest.

    Args:
        value: a function that rises, then falls.
        near: where to look first.
        reach: about how far away the answer may be; at least 1.
    """
    low, middle, high = _around(value, near, reach)
    moved = before = high[0] - low[0]
    while high[0] - low[0] > 2 * (step := max(1, middle[0] >> _FINEST_BITS)):
        at = _vertex(low, middle, high)
        left, right = middle[0] - low[0], high[0] - middle[0]
        if at is None or abs(at - middle[0]) > before / 2:
            at = middle[0] + (right // 2 if right > left else -(left // 2))
        elif abs(at - middle[0]) < step:
            at = middle[0] + (step if right > left else -step)
        before, moved = moved, abs(at - middle[0])
        new = at, value(at)
        inner, outer = (new, middle) if new[1] > middle[1] else (middle, new)
        if inner[0] < outer[0]:
            middle, high = inner, outer
        else:
            low, middle = outer, inner
    return max(low, middle, high, key=lambda point: point[1])[0]


Point = tuple[int, float]
_NOWHERE: Point = (0, float("-inf"))


def _around(value: Callable[[int], float], near: int, reach: int) -> tuple[Point, Point, Point]:
    """Three points of which the middle one is highest: walk uphill, twice as far each time."""

    def point(at: int) -> Point:
        return (at, value(at)) if at > 0 else _NOWHERE

    low, middle, high = point(near - reach), point(near), point(near + reach)
    while high[1] > middle[1]:
        reach *= 2
        low, middle, high = middle, high, point(high[0] + reach)
    while low[1] > middle[1]:
        reach *= 2
        low, middle, high = point(low[0] - reach), low, middle
    return low, middle, high


def _vertex(low: Point, middle: Point, high: Point) -> int | None:
    """The integer nearest to the vertex of the parabola through three points; None unless it lies between them."""
    (a, at_a), (b, at_b), (c, at_c) = low, middle, high
    left, right = (b - a) * (at_b - at_c), (b - c) * (at_b - at_a)
    if not 0.0 < left - right < float("inf"):
        return None
    at = b - round(((b - a) * left - (b - c) * right) / (2.0 * (left - right)))
    return at if a < at < c else None
