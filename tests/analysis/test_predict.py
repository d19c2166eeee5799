"""Predictions: what is summed, what an interval takes, what is missing, and what a wrong question is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.analysis.operator_time import OperatorClock
from wattention.analysis.predict import PredictionQuery
from wattention.analysis.predict_costs import TracedModel, largest_batch, predict_costs
from wattention.analysis.traffic import operator_traffic, traffic_of
from wattention.core.errors import UserError
from wattention.core.operators import MEMORY_KINDS, MemoryLine, MemoryPoint, Operator, StepTrace
from wattention.core.quantities import Absent, Quantity, measured
from wattention.core.specs import ModelSpec
from wattention.hardware.catalog import load_profile
from wattention.hardware.profile import HardwareProfile

SOURCE = "made up for a test"


def number(value: float, unit: str, **ends: float) -> dict[str, Any]:
    return {"value": value, "unit": unit, "source": SOURCE, **ends}


def profile(**changes: Any) -> HardwareProfile:
    """A device of round numbers: 1 Tflop/s, 100 GB/s, 10 us a launch, 10 W, 1 pJ a flop, 100 pJ a byte."""
    fields: dict[str, Any] = {
        "schema_version": 1, "title": "Round device", "kind": "gpu", "vendor": "none",
        "levels": [
            {"name": "shared", "holder": "block", "capacity": number(65536, "byte")},
            {"name": "main", "holder": "device", "capacity": number(2**30, "byte"), "bandwidth": number(1e11, "byte/s"),
             "energy": number(1e-10, "J/byte", low=5e-11, high=2e-10)},
        ],
        "peak": {"float32": number(1e12, "flop/s")},
        "flop_energy": {"float32": number(1e-12, "J/flop", low=5e-13, high=2e-12)},
        "launch_overhead": number(1e-5, "s"), "idle_power": number(10.0, "W"),
    }  # fmt: skip
    return HardwareProfile.model_validate({**fields, **changes})


def matmul(size: int = 1024, times: int = 1) -> Operator:
    return Operator(
        name="mm", kind="matmul", part="mlp", stage="forward", dtype="float32", dims=(1, size, size, size),
        flop=2 * size**3, read_bytes=8 * size**2, written_bytes=4 * size**2, times=times,
    )  # fmt: skip


def copy(moved: int, times: int = 1) -> Operator:
    return Operator(
        name="clone", kind="memory", part="attention", stage="forward", dtype="float32", dims=(moved // 8,), flop=0,
        read_bytes=moved // 2, written_bytes=moved // 2, times=times,
    )  # fmt: skip


def step(*operators: Operator, fixed: int = 1000, each: int = 100) -> StepTrace:
    zero = dict.fromkeys(MEMORY_KINDS, 0)
    point = MemoryPoint(
        phase="update", bytes_by_kind=zero | {"parameters": fixed, "activations": each}, layer_bytes=zero
    )
    growth = (MemoryLine(fixed, each),)
    return StepTrace(operators=operators, memory=(point,), further_layers=0, growth=growth)


QUERY = PredictionQuery(
    model=ModelSpec.preset("tiny"), mechanism="flash", tokens=100, batch=1, hardware="round", run_tokens=1e6
)


def predicted(trace: StepTrace, device: HardwareProfile, query: PredictionQuery = QUERY) -> Any:
    model = TracedModel(traces={"train": trace, "prefill": trace, "decode": trace}, parameters=1, model_flop=1)
    return predict_costs(query, model, device)


def test_a_gpu_hides_launches_behind_execution_and_a_cpu_does_not() -> None:
    trace = step(copy(10**8, times=3))  # 1 ms each
    assert predicted(trace, profile()).train.time.value == pytest.approx(3e-3)
    assert predicted(trace, profile(kind="cpu")).train.time.value == pytest.approx(3e-3 + 3e-5)
    many = predicted(step(copy(800, times=1000)), profile()).train
    assert many.time.value == pytest.approx(1e-2)
    assert many.bound_by == "launches"


def test_energy_is_idle_plus_operations_plus_bytes_with_both_ends_of_every_figure() -> None:
    train = predicted(step(copy(10**8), matmul()), profile()).train
    flop, moved = 2 * 1024**3, train.traffic[-1].moved.value
    total = train.energy.total
    assert total.value == pytest.approx(10 * train.time.value + flop * 1e-12 + moved * 1e-10)
    assert total.low == pytest.approx(10 * train.time.value + flop * 5e-13 + moved * 5e-11)
    assert total.high == pytest.approx(10 * train.time.value + flop * 2e-12 + moved * 2e-10)
    assert train.energy_per_token.value == pytest.approx(total.value / 100)
    run = predicted(step(copy(10**8), matmul()), profile()).run
    assert run.steps == 1e4
    assert run.energy.value == pytest.approx(1e4 * total.value)
    assert isinstance(run.carbon, Absent)


def test_carbon_needs_a_factor_and_names_its_source() -> None:
    query = replace(QUERY, carbon=measured(1e-7, "kg/J", "grid X 2024"))
    train = predicted(step(matmul()), profile(), query).train
    assert train.carbon_per_token.value == pytest.approx(train.energy_per_token.value * 1e-7)
    assert "grid X 2024" in train.carbon_per_token.source


@pytest.mark.parametrize(
    ("changes", "missing"),
    [({"idle_power": None}, "idle_power"), ({"flop_energy": {}}, "flop_energy of float32")],
)
def test_energy_is_absent_where_the_profile_lacks_a_figure_and_says_how_to_supply_it(
    changes: dict[str, Any], missing: str
) -> None:
    total = predicted(step(matmul()), profile(**changes)).train.energy.total
    assert isinstance(total, Absent)
    assert missing in total.reason
    assert "wattention calibrate" in total.reason


def test_every_number_is_predicted_or_a_bound() -> None:
    train = predicted(step(matmul(), copy(4096)), profile()).train
    for level in train.traffic:
        assert level.moved.origin == "predicted"
        assert level.bound.origin == "bound"
        assert level.bound.value <= level.moved.value
    assert {train.time.origin, train.energy.total.origin, train.hardware_flop.origin} == {"predicted"}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 50), st.integers(1, 10_000))
def test_the_largest_batch_fits_and_one_more_does_not(capacity: int, each: int, fixed: int) -> None:
    most = largest_batch(step(matmul(), fixed=fixed, each=each), capacity)
    for batch, fits in ((most, True), (most + 1, False)):
        if batch > 0:
            assert (fixed + batch * each <= capacity) == fits


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["attention", "attention-backward"]), st.sampled_from([64, 256, 1024]),
    st.sampled_from([32, 64, 128]), st.booleans(), st.sampled_from([2**16, 2**18, 2**22]),
)  # fmt: skip
def test_no_kernel_moves_less_than_its_bound(kind: str, tokens: int, dim: int, causal: bool, capacity: int) -> None:
    dims = (2, 4, 2, tokens, tokens, dim, dim, 0, int(causal))
    found = operator_traffic(kind, dims, "float32", 0, capacity)
    assert found is not None
    assert found.moved_bytes >= found.bound_bytes > 0


def test_flash_attention_s_published_traffic_is_met() -> None:
    """Dao et al. 2022, figure "HBM accesses": 4.4 GB; its algorithms move 4.06 to 5.15 GB."""
    dims = (64, 16, 16, 1024, 1024, 64, 64, 0, 0)
    passes = [operator_traffic(kind, dims, "float16", 0, 163 * 1024) for kind in ("attention", "attention-backward")]
    total = sum(one.moved_bytes for one in passes if one is not None)
    assert 1e9 < total < 5.2e9  # the planner may beat the published order, never be worse
    assert sum(one.bound_bytes for one in passes if one is not None) < total


def test_a_band_moves_less_than_all_earlier_keys() -> None:
    dims = (2, 4, 4, 4096, 4096, 64, 64)
    band, causal = (operator_traffic("attention", (*dims, window, 1), "float16", 0, 2**15) for window in (256, 0))
    assert band is not None
    assert causal is not None
    assert band.moved_bytes < causal.moved_bytes / 3
    assert band.bound_bytes < causal.bound_bytes / 3


def test_views_move_nothing_and_tiles_that_do_not_fit_are_absent() -> None:
    view = copy(800)._replace(kind="view")
    assert traffic_of(view, 100) == (0.0, 0.0)
    assert operator_traffic("attention", (1, 1, 1, 64, 64, 64, 64, 0, 1), "float32", 0, 8) is None
    tiny = profile(levels=[{"name": "registers", "holder": "core", "capacity": number(8, "byte")},
                           *profile().model_dump()["levels"]])  # fmt: skip
    attention = matmul()._replace(kind="attention", dims=(1, 1, 1, 64, 64, 64, 64, 0, 1))
    level = predicted(step(attention), tiny).train.traffic[0]
    assert isinstance(level.moved, Absent)
    assert "registers" in level.moved.reason


def test_a_profile_without_a_rate_or_a_bandwidth_says_what_to_add() -> None:
    with pytest.raises(UserError, match="no peak rate for float32") as rate:
        predicted(step(matmul()), profile(peak={}))
    assert "[peak] float32" in str(rate.value)
    levels = profile().model_dump(exclude_none=True)["levels"]
    del levels[-1]["bandwidth"]
    with pytest.raises(UserError, match="lacks the bandwidth of main") as bandwidth:
        predicted(step(matmul()), profile(levels=levels))
    assert "wattention calibrate" in str(bandwidth.value)


# --- calibrated profiles ----------------------------------------------------------------------------------------------


def calibrated(*timings: dict[str, Any]) -> HardwareProfile:
    return profile(kind="cpu", timings=[{"dtype": "float32", "source": SOURCE, **one} for one in timings])


ADD = {"operator": "add", "axes": ["bytes"], "points": [[1e3, 2e-6], [1e6, 1.02e-4], [1e7, 1.002e-3]]}
MM = {
    "operator": "mm",
    "axes": ["batch", "m", "n", "k"],
    "points": [
        [1, 8, 8, 8, 1e-6],
        [1, 256, 256, 256, 1e-6 + 2 * 256**3 / 5e10],
        [1, 2048, 2048, 2048, 2 * 2048**3 / 1e11],
    ],
}


def test_timings_are_met_at_their_own_sizes_without_the_start_up() -> None:
    clock = OperatorClock(calibrated(ADD, MM))
    assert clock.seconds(copy(10**6)) == (pytest.approx(1e-4), "timings")
    assert clock.seconds(copy(10**3))[0] == 0
    assert clock.seconds(copy(10**9))[0] == pytest.approx(0.1)  # in proportion beyond the last point
    assert clock.seconds(matmul(256))[0] == pytest.approx(2 * 256**3 / 5e10)
    assert clock.seconds(matmul(2048))[0] == pytest.approx(2 * 2048**3 / 1e11, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(10**3, 10**9), st.integers(10**3, 10**9))
def test_more_bytes_never_take_less_time(a: int, b: int) -> None:
    clock = OperatorClock(calibrated(ADD))
    few, many = sorted((a - a % 2, b - b % 2))
    assert clock.seconds(copy(few))[0] <= clock.seconds(copy(many))[0] * (1 + 1e-12)


def test_a_rate_between_two_measured_ones_lies_between_them() -> None:
    clock = OperatorClock(calibrated(ADD, MM))
    for size in (300, 512, 1000, 4096):
        rate = 2 * size**3 / clock.seconds(matmul(size))[0]
        assert 4.9e10 < rate < 1.01e11


def test_query_heads_that_share_their_keys_take_turns_in_the_backward_pass_on_a_cpu() -> None:
    points = [(2**e, 512, 512, 64, 1e-3 * max(1, 2**e / 2)) for e in range(4)]  # two threads, a head each
    points.append((1, 8, 8, 64, 1e-6))
    timings = {
        "operator": "attention-backward-causal", "axes": ["copies", "queries", "keys", "head dim"], "points": points,
    }  # fmt: skip
    clock = OperatorClock(calibrated(timings))

    def backward(key_heads: int) -> float:
        dims = (1, 4, key_heads, 512, 512, 64, 64, 0, 1)
        op = matmul()._replace(name="backward", kind="attention-backward", dims=dims)
        return clock.seconds(op)[0]

    assert backward(4) == pytest.approx(2e-3, rel=0.01)
    assert backward(2) == pytest.approx(2e-3, rel=0.01)
    assert backward(1) == pytest.approx(4e-3, rel=0.01)


def row(rows: int = 1) -> Operator:
    """A product of a few rows with the weights of a layer, 1 MiB of them."""
    return matmul()._replace(dims=(1, rows, 512, 512), flop=2 * rows * 512**2)


STREAMED_MM = {**MM, "operands": "main", "points": [[1, 1, 512, 512, 1e-3 + 1e-6], [1, 32, 512, 512, 2e-3 + 1e-6]]}


def test_weights_that_no_cache_holds_come_from_main_memory() -> None:
    clock = OperatorClock(calibrated(ADD, MM, STREAMED_MM))
    cache_bytes = profile().fast_levels[-1].capacity_bytes
    shares = [clock.share_from_main(times * cache_bytes) for times in (0.1, 0.5, 0.75, 1, 10)]
    assert shares == pytest.approx([0, 0, 0.5, 1, 1])
    cached = clock.seconds(row())[0]
    assert clock.seconds(row(), 1.0)[0] == pytest.approx(1e-3)
    assert clock.seconds(row(32), 1.0)[0] == pytest.approx(2e-3)
    assert clock.seconds(row(), 0.5)[0] == pytest.approx((cached + 1e-3) / 2)
    for unmoved in (matmul(2048), copy(10**6)):  # many rows pay for their weights; copies were timed as they are
        assert clock.seconds(unmoved, 1.0) == clock.seconds(unmoved)


def test_a_profile_that_was_not_timed_from_main_memory_tells_what_it_knows() -> None:
    clock = OperatorClock(calibrated(ADD, MM))
    assert clock.seconds(row(), 1.0) == clock.seconds(row())


def test_only_decoding_streams_its_weights() -> None:
    device = calibrated(ADD, MM, STREAMED_MM)
    many = step(row()._replace(times=10**4, read_bytes=2**20))  # more than a cache, in turn
    costs = predicted(many, device)
    assert costs.decode.time.value > 2 * costs.prefill.time.value
    assert costs.prefill.time.value == pytest.approx(costs.train.time.value)


def test_inference_starts_its_operators_faster_where_that_was_measured() -> None:
    faster = profile(kind="cpu", launch_overhead_inference={"value": 1e-6, "unit": "s", "source": SOURCE})
    costs = predicted(step(copy(800, times=1000)), faster)
    assert costs.train.launch_time.value == pytest.approx(1e-2)
    assert costs.decode.launch_time.value == costs.prefill.launch_time.value == pytest.approx(1e-3)


def test_queries_that_share_their_keys_read_them_once() -> None:
    points = [(c, 1, 1024, 64, 1e-6 + c * 1e-5) for c in (1, 2, 4, 8)] + [(1, 1, 8, 64, 1e-6)]
    timings = {
        "operator": "attention-full", "axes": ["copies", "queries", "keys", "head dim"], "points": points,
    }  # fmt: skip
    clock = OperatorClock(calibrated(timings))
    for key_heads in (1, 2, 8):
        op = matmul()._replace(kind="attention", dims=(1, 8, key_heads, 1, 1024, 64, 64, 0, 0))
        assert clock.seconds(op)[0] == pytest.approx(key_heads * 1e-5, rel=0.01)


def test_a_calibrated_profile_without_a_product_says_to_calibrate_again() -> None:
    with pytest.raises(UserError, match="no timings of mm in float32"):
        OperatorClock(calibrated(ADD)).seconds(matmul())


def test_timings_must_fit_their_axes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="points of add want 1 sizes"):
        calibrated({**ADD, "points": [[1.0, 2.0, 3.0]]})


def test_catalogue_gpus_can_be_asked() -> None:
    for name in ("a100-80", "h100-sxm", "rtx-4090"):
        assert OperatorClock(load_profile(name)).seconds(copy(10**9))[0] > 0


def test_quantities_with_a_range_keep_it_inside() -> None:
    total = predicted(step(matmul()), profile()).train.energy.total
    assert isinstance(total, Quantity)
    assert total.low is not None
    assert total.high is not None
    assert total.low < total.value < total.high
