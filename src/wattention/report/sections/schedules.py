"""What documents on data movement share: a problem in one line, the table of schedules, numbers of closed forms."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.iocomplexity.planning.planner import Plan, PlannedSchedule
from wattention.iocomplexity.planning.regime import describe_regime
from wattention.iocomplexity.problem.attention import Problem
from wattention.report.document import Cell, Column, Section, Table

_COLUMNS = (
    Column(key="schedule", heading="schedule", help="name of the algorithm", numeric=False),
    Column(key="words", heading="words", help="words moved, loads and stores"),
    Column(key="bytes", heading="bytes", help="words times the bytes of one word"),
    Column(key="loads", heading="loads", help="words read from slow memory"),
    Column(key="stores", heading="stores", help="words written to slow memory"),
    Column(key="scratch", heading="scratch", help="words of slow memory beside inputs and outputs"),
    Column(key="flop", heading="FLOP", help="operations of the matrix products"),
    Column(key="ratio", heading="x bound", help="words over the lower bound of the class named beside it"),
    Column(key="class", heading="bound (class)", help="the bound the ratio is taken to", numeric=False),
    Column(key="tiles", heading="tiles", help="what stays in fast memory", numeric=False),
)


def describe_problem(problem: Problem) -> str:
    """The problem in one line."""
    p = problem
    tokens = (
        f"{p.query_tokens} tokens" if p.query_tokens == p.key_tokens else f"{p.query_tokens} x {p.key_tokens} tokens"
    )
    dims = f"head dim {p.key_dim}" if p.key_dim == p.value_dim else f"head dim {p.key_dim}, value dim {p.value_dim}"
    parts = [tokens, dims + (" (values inside keys)" if p.values_in_keys else ""), f"{p.mask.name} mask"]
    if p.heads > 1:
        parts.append(f"{p.heads} heads" + (f" on {p.kv_heads} key/value heads" if p.kv_heads != p.heads else ""))
    if p.batch > 1:
        parts.append(f"batch {p.batch}")
    return ", ".join(parts)


def schedule_section(title: str, plan: Plan, ranked: Sequence[PlannedSchedule], word_bytes: int) -> Section:
    """Return schedules, the one with the fewest words marked, with their ratio to the bound of their class."""
    rows = tuple(
        (
            Cell(content=one.name, best=one is plan.best),
            Cell(content=predicted_words(one.words)),
            Cell(content=predicted_bytes(one.words * word_bytes)),
            Cell(content=predicted_words(one.loads)),
            Cell(content=predicted_words(one.stores)),
            Cell(content=predicted_words(one.predicted.scratch_words)),
            Cell(content=Quantity(value=one.flop, unit="flop", origin="predicted", source=one.name)),
            Cell(content=ratio_to_bound(one.ratio)),
            Cell(content=bound_of(one)),
            Cell(content=" ".join(f"{key}={value}" for key, value in one.tiles.items())),
        )
        for one in ranked
    )
    left_out = tuple(f"Left out: {one.name}: {one.reason}." for one in plan.left_out)
    table = Table(columns=_COLUMNS, rows=rows)
    return Section(title=title, table=table, notes=(describe_regime(plan), *left_out))


def bound_of(one: PlannedSchedule) -> str:
    """Name the bound that a schedule is held against, with its class; a dash where there is none."""
    if one.bound is None:
        return "-"
    active = one.bound.active.bound
    return f"{active.name} ({active.algorithm_class.label})"


def predicted_words(value: float) -> Quantity:
    """Return words moved by a schedule."""
    return Quantity(value=value, unit="word", origin="predicted", source="closed form of the schedule")


def predicted_bytes(value: float) -> Quantity:
    """Return bytes moved by a schedule."""
    return Quantity(value=value, unit="byte", origin="predicted", source="closed form of the schedule")


def ratio_to_bound(value: float | None) -> Reading:
    """Return words over a bound, or that none covers the class."""
    if value is None:
        return Absent("no bound covers the class")
    return Quantity(value=value, unit="ratio", origin="predicted", source="words over the bound")
