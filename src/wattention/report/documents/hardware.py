"""Hardware profiles as documents: the list of them, and one device with every figure and its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattention.hardware.profile import HardwareProfile, MemoryLevel, Number
from wattention.report.document import Cell, Column, Document, Section, Table
from wattention.report.units import format_value, significant

_LIST = (
    Column(key="name", heading="name", help="how commands take it: --hardware, --device", numeric=False),
    Column(key="title", heading="device", help="what it is", numeric=False),
    Column(key="memory", heading="memory", help="capacity of the main memory"),
    Column(key="bandwidth", heading="bandwidth", help="peak rate of the main memory"),
    Column(key="rate", heading="16-bit\nFLOP/s", help="dense peak of bfloat16, else float16"),
    Column(key="limit", heading="limit", help="board or package power limit"),
    Column(key="flop", heading="J/FLOP", help="energy of one 16-bit operation"),
    Column(key="byte", heading="J/byte", help="energy of one byte from main memory"),
    Column(key="recalled", heading="recalled", help="figures that still await a look at their source"),
)
_LEVELS = (
    Column(key="level", heading="level", help="from the innermost to the main memory", numeric=False),
    Column(key="holder", heading="of one", help="who owns one such memory", numeric=False),
    Column(key="capacity", heading="capacity", help="what one holder can use"),
    Column(key="count", heading="holders", help="holders in the device"),
    Column(key="bandwidth", heading="bandwidth", help="towards the level inside it, whole device"),
    Column(key="energy", heading="energy", help="joules to move one byte to the level inside it"),
)
_RATES = (
    Column(key="dtype", heading="numbers", help="format of the operands", numeric=False),
    Column(key="rate", heading="peak", help="dense, accumulators in float32"),
    Column(key="energy", heading="energy", help="joules of one operation"),
)
_FIGURES = (
    Column(key="figure", heading="figure", help="its place in the profile", numeric=False),
    Column(key="value", heading="value", help="as the profile has it"),
    Column(key="low", heading="low", help="the least it may be, where known"),
    Column(key="high", heading="high", help="the most it may be, where known"),
)


def hardware_list(profiles: Mapping[str, HardwareProfile]) -> Document:
    """Every profile in one row, by name."""
    rows = tuple(_list_row(name, profile) for name, profile in sorted(profiles.items()))
    return Document(
        title="Hardware profiles",
        answer="All figures of one device and their sources: wattention hardware NAME. NAME may be a TOML file.",
        sections=(Section(title="Devices", table=Table(columns=_LIST, rows=rows)),),
    )


def hardware_document(name: str, profile: HardwareProfile) -> Document:
    """One device: levels, rates, power, and where each figure comes from."""
    numbers = profile.numbers()
    recalled = sum(number.recalled for _, number in numbers)
    power = (profile.power_limit, profile.idle_power)
    limit, idle = (_text(number) if number is not None else "not known" for number in power)
    launch = _text(profile.launch_overhead) if profile.launch_overhead is not None else "not known"
    notes = [f"Power limit {limit}, idle {idle}; starting one operator costs {launch}."]
    if not any(level.energy for level in profile.levels) or not profile.flop_energy:
        notes.append(
            "No published energy per FLOP or per byte was found: joules cannot be predicted from this profile."
        )
    if recalled:
        notes.append(f"{recalled} of {len(numbers)} figures were written down from memory and await their source.")
    dtypes = dict.fromkeys([*profile.peak, *profile.flop_energy])
    return Document(
        title=f"{profile.title} ({name})",
        answer=f"{profile.vendor}, {profile.kind}; {len(numbers)} figures, each with its source below.",
        sections=(
            Section(
                title="Memory",
                table=Table(columns=_LEVELS, rows=tuple(_level_row(level) for level in profile.levels)),
                notes=tuple(notes),
            ),
            Section(
                title="Arithmetic",
                table=Table(
                    columns=_RATES,
                    rows=tuple(
                        (Cell(content=d), _cell(profile.peak.get(d)), _cell(profile.flop_energy.get(d))) for d in dtypes
                    ),
                ),
            ),
            Section(
                title="Figures and their sources",
                table=Table(columns=_FIGURES, rows=tuple(_figure_row(*pair) for pair in numbers)),
                notes=_sources(numbers),
            ),
        ),
    )


def _list_row(name: str, profile: HardwareProfile) -> tuple[Cell, ...]:
    main = profile.main_memory
    recalled = sum(number.recalled for _, number in profile.numbers())
    rate = profile.peak.get("bfloat16") or profile.peak.get("float16")
    cost = profile.flop_energy.get("bfloat16") or profile.flop_energy.get("float16")
    return (
        Cell(content=name),
        Cell(content=profile.title),
        _cell(main.capacity),
        _cell(main.bandwidth),
        Cell(content=format_value(rate.value, "flop/s").removesuffix("flop/s").strip() if rate else "-"),
        _cell(profile.power_limit),
        _cell(cost),
        _cell(main.energy),
        Cell(content=str(recalled) if recalled else ""),
    )


def _level_row(level: MemoryLevel) -> tuple[Cell, ...]:
    figures = (level.capacity, level.count, level.bandwidth, level.energy)
    return (Cell(content=level.name), Cell(content=level.holder), *(_cell(figure) for figure in figures))


def _figure_row(place: str, number: Number) -> tuple[Cell, ...]:
    ends = (number.low, number.high)
    return (
        Cell(content=place),
        _cell(number),
        *(Cell(content="" if end is None else _value(end, number.unit)) for end in ends),
    )


def _sources(numbers: Sequence[tuple[str, Number]]) -> tuple[str, ...]:
    """One line a source, led by the figures that rest on it."""
    places: dict[str, list[str]] = {}
    for place, number in numbers:
        places.setdefault(number.source, []).append(place)
    return tuple(f"{', '.join(figures)}: {source}." for source, figures in places.items())


def _cell(number: Number | None) -> Cell:
    return Cell(content="-" if number is None else _text(number))


def _text(number: Number) -> str:
    return _value(number.value, number.unit)


def _value(value: float, unit: str) -> str:
    if unit == "count":
        return significant(value)
    # data sheets print decimal bytes per second, and a reader will hold one beside this table
    return format_value(value, "B/s" if unit == "byte/s" else unit)
