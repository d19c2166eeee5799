"""Where the joules go: how much of the difference between mechanisms is time, FLOPs and bytes, and what each costs."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.analysis.blocks import Estimate
from wattention.analysis.joule_loads import RunLoads, run_loads
from wattention.analysis.joules import CONDITION_LIMIT, UNITS, JouleModel, explain_joules
from wattention.analysis.summary import Comparison
from wattention.core.records import CellRecord
from wattention.report.document import Axis, Cell, Column, Figure, Series, Table, View
from wattention.report.figures.slots import slots
from wattention.report.units import format_value, significant
from wattention.report.wording import list_names

NAMES = {"time": "time", "flop": "FLOPs", "bytes": "bytes moved", "cpu": "CPU time"}
_COLUMNS = (
    Column(key="what", heading="what", help="coefficient, share of the difference, or mechanism", numeric=False),
    Column(key="value", heading="value", help="of the fit to all windows"),
    Column(key="low", heading="low", help="end of the 95 % interval, blocks drawn with replacement"),
    Column(key="high", heading="high", help="end of the 95 % interval"),
)


def draw(comparison: Comparison, records: Sequence[CellRecord]) -> Figure | None:
    """Return the figure; None where the records hold no joules or too few windows of them."""
    found = run_loads(comparison.spec, records)
    if found is None:
        return None
    model = explain_joules(found.loads, ("time", "cpu") if found.kind == "estimated" else tuple(UNITS)[:3])
    if isinstance(model, str):
        return None
    estimated = found.kind == "estimated"
    places = slots(comparison)
    return Figure(
        key="joules",
        title="Where the joules go",
        caption=_refusal(model) if estimated else _finding(model),
        how=_method(found, model),
        views=(_fit_view(model, places),) if estimated else (_shares_view(model), _fit_view(model, places)),
        table=Table(columns=_COLUMNS, rows=_rows(model, shares=not estimated)),
    )


def _refusal(model: JouleModel) -> str:
    """What the regression returns of an estimate is the model that was put in; say which."""
    parts = [f"{format_value(c.value, UNITS[name])} x {NAMES[name]}" for name, c in model.coefficients.items()]
    return (
        f"Not a finding: no counter was read, and the estimate is {' + '.join(parts)} to within {model.fit_error:.1g}, "
        "which is what it was made of. It says how long mechanisms computed, and nothing about where joules go."
    )


def _finding(model: JouleModel) -> str:
    shares = sorted(model.shares.items(), key=lambda pair: -pair[1].value)
    words = [f"{NAMES[name]} {_percent(share)}" for name, share in shares]
    worst = max(model.errors, key=lambda name: model.errors[name])
    error = f"a mechanism predicted from the others misses by {max(model.errors.values()):.0%} at most ({worst})"
    text = f"Of the differences in energy between mechanisms, {list_names(words)} explain {_percent(model.explained)}"
    return f"{text}; {error}. {_collinearity_words(model)}"


def _collinearity_words(model: JouleModel) -> str:
    pairs = [f"{NAMES[a]} and {NAMES[b]} (r = {r:.2f})" for a, b, r in model.collinearity.together]
    go = f" {list_names(pairs)} go together in these windows." if pairs else ""
    if model.identified:
        costs = [f"{format_value(c.value, UNITS[n])} of {NAMES[n]}" for n, c in model.coefficients.items()]
        return f"The fit: {list_names(costs)}.{go}"
    return (
        f"What each costs cannot be told: the predictors are collinear (condition {_condition(model)}, limit "
        f"{CONDITION_LIMIT:g}), and their shares are split by convention, not by the data.{go}"
    )


def _percent(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.0%}"
    return f"{estimate.value:.0%} [{estimate.low:.0%}, {estimate.high:.0%}]"


def _method(found: RunLoads, model: JouleModel) -> str:
    groups = {load.group for load in found.loads}
    parts = [
        f"{len(found.loads)} windows of {len(model.errors)} mechanisms in {len(groups)} kinds of work, {model.blocks} "
        "blocks; non-negative least squares on relative errors; shares of R2 by mean increment over all orders; "
        "intervals by drawing blocks with replacement"
    ]
    if found.fast_memory is not None:
        size = format_value(found.fast_memory.size_bytes, "byte")
        parts.append(f"bytes by the two-level model against {found.fast_memory.title}, {size}; attention alone")
    if found.left_out:
        parts.append("left out: " + "; ".join(f"{name}: {why}" for name, why in found.left_out.items()))
    if found.simulated:
        parts.append("SIMULATED records: the joules are a replay's")
    return ". ".join(part[0].upper() + part[1:] for part in parts) + "."


def _shares_view(model: JouleModel) -> View:
    rest = 1 - model.explained.value
    names = [*(NAMES[name] for name in model.shares), "not explained"]
    low = [share.low for share in model.shares.values()]
    high = [share.high for share in model.shares.values()]
    values = [*(share.value for share in model.shares.values()), rest]
    ends = [
        [*(value if end is None else end for end, value in zip(side, values, strict=False)), rest]
        for side in (low, high)
    ]
    series = Series(
        name="share of the squared differences",
        x=tuple(names),
        y=tuple(values),
        low=tuple(ends[0]) if model.blocks > 1 else (),
        high=tuple(ends[1]) if model.blocks > 1 else (),
        mark="bars",
        hover=tuple(f"{name}: {value:.0%}" for name, value in zip(names, values, strict=True)),
    )
    return View(
        label="what explains the difference", x=Axis(title=""), y=Axis(title="share", zero=True), series=(series,)
    )


def _fit_view(model: JouleModel, places: dict[str, int]) -> View:
    series = []
    for mechanism in model.errors:
        own = [load for load in model.loads if load.mechanism == mechanism]
        fitted = [model.predict_joules(load) for load in own]
        series.append(
            Series(
                name=mechanism,
                x=tuple(fitted),
                y=tuple(load.energy_j for load in own),
                slot=places[mechanism],
                hover=tuple(
                    f"{mechanism}, {load.group}, block {load.block}: {format_value(load.energy_j, 'J')}, "
                    f"fitted {format_value(value, 'J')}"
                    for load, value in zip(own, fitted, strict=True)
                ),
            )
        )
    return View(
        label="fit",
        x=Axis(title="joules of the fit", unit="J", log=True),
        y=Axis(title="joules", unit="J", log=True),
        series=tuple(series),
    )


def _rows(model: JouleModel, *, shares: bool) -> tuple[tuple[Cell, ...], ...]:
    rows = [_row(f"cost of {NAMES[n]}", estimate, UNITS[n]) for n, estimate in model.coefficients.items()]
    if shares:
        rows += [_row(f"difference explained by {NAMES[n]}", share, "1") for n, share in model.shares.items()]
        rows.append(_row("difference explained in all", model.explained, "1"))
        rows += [_row(f"{n} predicted from the others, error", error, "1") for n, error in model.errors.items()]
    last = ("condition number of the predictors", _condition(model), "", "")
    return (*rows, tuple(Cell(content=text) for text in last))


def _condition(model: JouleModel) -> str:
    return significant(model.collinearity.condition) if model.collinearity.condition < 1e12 else "infinite"


def _row(what: str, estimate: Estimate | float, unit: str) -> tuple[Cell, ...]:
    value, ends = (
        (estimate.value, (estimate.low, estimate.high)) if isinstance(estimate, Estimate) else (estimate, (None, None))
    )
    return (
        Cell(content=what),
        Cell(content=format_value(value, unit)),
        *(Cell(content="" if end is None else format_value(end, unit)) for end in ends),
    )
