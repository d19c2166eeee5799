"""Made-up predictions, for what reads them."""

from __future__ import annotations

from wattention.analysis.predict import Costs, Energy, LevelTraffic, MemoryPrediction, Prediction, PredictionQuery
from wattention.core.quantities import Absent, Quantity, predicted
from wattention.core.specs import ModelSpec

SOURCE = "made up"


def costs(workload, *, time_s, tokens, joules=None, flop=1e12, moved=1e9, launches=100, bound_by="compute"):
    energy = Absent("the profile has no energies") if joules is None else Quantity(
        value=joules, unit="J", origin="predicted", source=SOURCE, low=joules / 2, high=joules * 2
    )  # fmt: skip
    per_token = energy if joules is None else Quantity(
        value=joules / tokens, unit="J/token", origin="predicted", source=SOURCE,
        low=joules / 2 / tokens, high=joules * 2 / tokens,
    )  # fmt: skip
    traffic = LevelTraffic(
        inner="L2", outer="main", moved=predicted(moved, "byte", SOURCE), bound=predicted(moved / 2, "byte", SOURCE),
        attention_moved=predicted(moved / 3, "byte", SOURCE), attention_bound=predicted(moved / 4, "byte", SOURCE),
    )  # fmt: skip
    return Costs(
        workload=workload, tokens=tokens, time=predicted(time_s, "s", SOURCE),
        tokens_per_s=predicted(tokens / time_s, "token/s", SOURCE), part_times={},
        attention_time=predicted(time_s / 4, "s", SOURCE), launches=launches,
        launch_time=predicted(launches * 1e-6, "s", SOURCE), bound_by=bound_by,
        hardware_flop=predicted(flop, "flop", SOURCE), traffic=(traffic,),
        energy=Energy(total=energy, idle=energy, flop=energy, levels={}, missing=()),
        energy_per_token=per_token, carbon_per_token=Absent("no grid"),
    )  # fmt: skip


def prediction(mechanism, *, train_s, prefill_s=1.0, decode_s=1.0, peak_bytes=2**30, joules=None, cache=0, **details):
    """One point of 1024 tokens, batch 1, on a made-up device."""
    model = ModelSpec.preset("gpt2")
    query = PredictionQuery(model=model, mechanism=mechanism, tokens=1024, hardware="rtx-4090", precision="bfloat16")
    return Prediction(
        query=query, device="Made-up device", calibrated=False,
        train=costs("train", time_s=train_s, tokens=1024, joules=joules, **details),
        prefill=costs("prefill", time_s=prefill_s, tokens=1024, joules=joules),
        decode=costs("decode", time_s=decode_s, tokens=1, joules=joules),
        memory=MemoryPrediction(
            peak=predicted(peak_bytes, "byte", SOURCE), parts={}, phase="head",
            capacity=predicted(2**34, "byte", SOURCE), fits=True, largest_batch=4,
        ),
        cache=predicted(cache, "byte", SOURCE), parameters=predicted(1e8, "count", SOURCE),
        model_flop=predicted(1e12, "flop", SOURCE), run=None, marks=("times are lower limits",),
    )  # fmt: skip
