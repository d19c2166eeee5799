"""The only place that turns a number and its base unit into text a person reads.

Each number shows its origin: measured numbers are bare, ``#`` marks counted, ``=`` predicted by a closed form,
``>=`` a bound, and ``~`` an estimate; a missing number is a dash (its reason goes into the notes).
"""

from __future__ import annotations

from wattention.core.quantities import Absent, Origin, Quantity, Reading

ORIGIN_MARKS: dict[Origin, str] = {"measured": "", "counted": "#", "predicted": "=", "bound": ">=", "estimated": "~"}
ORIGIN_LEGEND = "unmarked: measured   # counted   = predicted by a closed form   ~ estimated   - absent"

_DECIMAL = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))
_BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def format_reading(reading: Reading, *, interval: bool = False, short: bool = False) -> str:
    """Format a reading with its prefix and origin mark.

    ``interval`` adds the half-width in per cent; ``short`` leaves out what a column's heading says: the ``/token`` of
    a rate per token, and units that are words.
    """
    if isinstance(reading, Absent):
        return "-"
    text = ORIGIN_MARKS[reading.origin] + format_value(reading.value, reading.unit)
    if short:
        text = text.removesuffix("/token").removesuffix("token/s").removesuffix("flop").rstrip()
    if interval and reading.low is not None and reading.high is not None and reading.value:
        text += f" ±{_half_width_percent(reading)}"
    return text


def format_cell(content: str | Reading) -> str:
    """Format what stands in a table: words as they are, a reading in short with its interval where it has one."""
    return content if isinstance(content, str) else format_reading(content, interval=True, short=True)


def format_interval(value: float, low: float | None, high: float | None, *, decimals: int = 2) -> str:
    """Format a bare number with its interval, ``0.82 [0.80, 0.84]``; without one, the number alone."""
    if low is None or high is None:
        return f"{value:.{decimals}f}"
    return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"


def format_value(value: float, unit: str) -> str:
    """Format a number of a base unit with three significant digits and a prefix where the unit takes one."""
    if unit == "byte" or unit.startswith("byte/"):
        return _scaled(value, _BINARY) + unit.removeprefix("byte")
    if unit.startswith("kgCO2e"):
        grams = _scaled(1e3 * value, _DECIMAL + _SMALL)
        return f"{grams}{'g' if grams[-1:].isalpha() else ' g'} CO2e{unit.removeprefix('kgCO2e')}"
    if unit == "ratio":
        return f"{value:.2f}x" if value < 9.995 else f"{significant(value)}x"
    if unit in ("bit/byte", "accuracy", "core"):
        return f"{value:.3f}"
    if unit == "1":
        return significant(value)
    scale = _DECIMAL + _SMALL if _takes_small_prefix(unit) else _DECIMAL
    number = _scaled(value, scale)
    return f"{number}{unit}" if number[-1:].isalpha() or number.endswith("µ") else f"{number} {unit}"


def significant(value: float, digits: int = 3) -> str:
    """Format with so many significant digits and without an exponent for everyday sizes."""
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}"
    if "e" in text:
        return f"{value:.0f}" if 1 <= abs(value) < 1e6 else text.replace(".e", "e")
    return text.rstrip(".")


def _takes_small_prefix(unit: str) -> bool:
    return unit.split("/", maxsplit=1)[0] in ("s", "J", "W")


def _scaled(value: float, scale: tuple[tuple[float, str], ...]) -> str:
    magnitude = abs(value)
    if magnitude == 0:
        return f"0 {scale[-1][1]}" if scale is _BINARY else "0"
    # the rounding of 999.6 to three digits must not print as 1.00e+03 of the smaller unit
    factor, prefix = next(((f, p) for f, p in scale if magnitude >= f * 0.9995), scale[-1])
    number = significant(value / factor)
    return f"{number} {prefix}".rstrip()


def _half_width_percent(quantity: Quantity) -> str:
    assert quantity.low is not None
    assert quantity.high is not None
    percent = 50 * (quantity.high - quantity.low) / abs(quantity.value)
    return f"{significant(percent, 2)}%"


def describe_reading(reading: Reading) -> str:
    """Say where a number comes from and between what it lies, or why there is none."""
    if isinstance(reading, Absent):
        return f"absent: {reading.reason}"
    words = f"{reading.origin}: {reading.source}"
    if reading.low is None or reading.high is None:
        return words
    kind = "range" if reading.origin == "estimated" else "95 % interval"
    return f"{words}\n{kind} {format_value(reading.low, reading.unit)} to {format_value(reading.high, reading.unit)}"
