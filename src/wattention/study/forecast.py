"""What a run will take, before it starts: the seam between planning and prediction.

:func:`forecast_run` is the one place that a planner asks. It answers from earlier runs that measured the same cells on
this host (same model, data, training, measuring, device and threads); where there are none it says so. A predictor
that knows more comes in as another :data:`Forecaster`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wattention.core.quantities import Absent, Quantity, Reading
from wattention.core.records import CellKind, CellRecord
from wattention.core.run_spec import RunSpec
from wattention.study.grid import plan_cells
from wattention.study.store import StoredRun


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Seconds of all cells of a run one after the other, and joules of its training steps."""

    time_s: Reading
    energy_j: Reading


Forecaster = Callable[[RunSpec], Forecast]

Likeness = tuple[str, CellKind, str]
"""What two cells must share to take about as long: the run but for seed, blocks and mechanisms; kind; mechanism."""


def forecaster_from(earlier: Iterable[StoredRun]) -> Forecaster:
    """Return a forecaster that knows what these runs measured."""
    seconds: dict[Likeness, list[float]] = {}
    joules: dict[Likeness, list[float]] = {}
    for run in earlier:
        setting = _setting(run.spec)
        for record in run.records:
            alike = (setting, record.key.kind, _mechanism(run.spec, record.key.mechanism))
            if record.status == "ok" and "cell_s" in record.environment:
                seconds.setdefault(alike, []).append(float(record.environment["cell_s"]))
            energy = _energy_j(record)
            if energy is not None:
                joules.setdefault(alike, []).append(energy)

    def forecast(spec: RunSpec) -> Forecast:
        setting = _setting(spec)
        cells = [(setting, cell.key.kind, _mechanism(spec, cell.key.mechanism)) for cell in plan_cells(spec)]
        training = [alike for alike in cells if alike[1] == "train"]
        return Forecast(time_s=_total(cells, seconds, "s"), energy_j=_total(training, joules, "J"))

    return forecast


def forecast_run(spec: RunSpec, earlier: Iterable[StoredRun] = ()) -> Forecast:
    """Return what one run will take, as far as it is known."""
    return forecaster_from(earlier)(spec)


def _total(cells: list[Likeness], known: dict[Likeness, list[float]], unit: str) -> Reading:
    unknown = sum(alike not in known for alike in cells)
    if unknown:
        return Absent(f"no earlier run measured {unknown} of its {len(cells)} cells")
    return Quantity(
        value=sum(statistics.median(known[alike]) for alike in cells),
        unit=unit,
        origin="predicted",
        source="sum over cells of the median that earlier runs of the same cell measured",
    )


def _setting(spec: RunSpec) -> str:
    alone = spec.model_copy(update={"mechanisms": (), "seed": 0, "blocks": 1, "time_limit_s": None})
    return alone.model_dump_json()


def _mechanism(spec: RunSpec, label: str) -> str:
    choice = next((choice for choice in spec.mechanisms if choice.label == label), None)
    return label if choice is None else choice.model_copy(update={"label": ""}).model_dump_json()


def _energy_j(record: CellRecord) -> float | None:
    """Joules of a training cell's measured steps."""
    if record.status != "ok" or "energy" not in record.phases or "train" not in record.phases:
        return None
    energy, train = record.phases["energy"].readings, record.phases["train"].readings
    joules, of_tokens, tokens = energy.get("energy_j"), energy.get("tokens"), train.get("tokens")
    if isinstance(joules, Quantity) and isinstance(of_tokens, Quantity) and isinstance(tokens, Quantity):
        return joules.value / of_tokens.value * tokens.value
    return None
