"""A calibration becomes a profile that the loader accepts, with a source on every number and a reason for every gap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity, measured
from wattention.hardware.profile import read_profile
from wattention.lab.calibration import operators
from wattention.lab.calibration.energy import LoadWindow, fit_energy
from wattention.lab.calibration.levels import CacheLevel, measure_levels
from wattention.lab.calibration.operators import OperatorTiming, time_probe
from wattention.lab.calibration.probes import all_probes
from wattention.study.calibration import Calibration, profile_toml, run_calibration

HOST = {"host": {"hostname": "bench-1", "cpu": "Some CPU"}, "packages": {"torch": "2.9"}, "torch": {"threads": 2}}


def calibration(**energy: Quantity | Absent) -> Calibration:
    none = Absent("no energy counter can be read here")
    return Calibration(
        timings=(
            OperatorTiming(operator="add", dtype="float32", axes=("bytes",), sizes=(3072.0,), flop=0, seconds=2e-6),
            OperatorTiming(operator="add", dtype="float32", axes=("bytes",), sizes=(1e8,), flop=0, seconds=2e-3),
            OperatorTiming(operator="mm", dtype="float32", axes=("batch", "m", "n", "k"), sizes=(1, 64, 64, 64),
                           flop=2 * 64**3, seconds=1e-5),
            OperatorTiming(operator="mm", dtype="float32", axes=("batch", "m", "n", "k"), sizes=(1, 1, 64, 64),
                           flop=2 * 64**2, seconds=1e-6, operands="main"),
        ),
        left_out=3, launch_s=5e-6, launches=1000, launch_inference_s=3e-6, launches_inference=500,
        levels=(
            CacheLevel(name="L1", holder="core", capacity_bytes=32768, count=2, bandwidth_bytes_s=3e11),
            CacheLevel(name="main", holder="device", capacity_bytes=2**34, count=1, bandwidth_bytes_s=3e10),
        ),
        energy={"idle_power": none, "flop_energy": none, "byte_energy": none, **energy},
        others_share=measured(0.031, "1", "test"), environment=HOST, took_s=42.0,
    )  # fmt: skip


def written(found: Calibration, folder: Path) -> Path:
    path = folder / "mine.toml"
    path.write_text(profile_toml(found, now=datetime(2026, 1, 2, tzinfo=UTC)))
    return path


def test_the_profile_is_read_back_with_sources_and_conditions(tmp_path: Path) -> None:
    profile = read_profile(written(calibration(), tmp_path))
    assert profile.launch_overhead is not None
    assert profile.launch_overhead.source.startswith("measured by wattention calibrate on bench-1, 2026-01-02")
    assert profile.launch_overhead_inference is not None
    assert profile.launch_overhead_inference.value == pytest.approx(3e-6)
    assert "over 500 operators" in profile.launch_overhead_inference.source
    assert [(one.operator, one.operands, len(one.points)) for one in profile.timings] == [
        ("add", "cache", 2), ("mm", "cache", 1), ("mm", "main", 1),
    ]  # fmt: skip
    assert profile.peak["float32"].value == pytest.approx(2 * 64**3 / 1e-5, rel=1e-3)
    assert profile.main_memory.bandwidth is not None
    assert profile.idle_power is None
    assert "no energy counter" in profile.conditions["energy"]
    assert profile.conditions["others"].startswith("3.1 %")
    assert profile.conditions["left_out"].startswith("3 ")


def test_measured_energy_keeps_its_interval(tmp_path: Path) -> None:
    energy = {
        name: Quantity(value=value, unit=unit, origin="measured", source="fit", low=0.9 * value, high=1.1 * value)
        for name, value, unit in (
            ("idle_power", 20.0, "W"),
            ("flop_energy", 1e-11, "J/flop"),
            ("byte_energy", 1e-10, "J/byte"),
        )
    }
    profile = read_profile(written(calibration(**energy), tmp_path))
    assert profile.flop_energy["float32"].low == pytest.approx(9e-12)
    assert profile.main_memory.energy is not None
    assert profile.main_memory.energy.high == pytest.approx(1.1e-10)


def test_the_fit_finds_the_coefficients_that_made_the_joules() -> None:
    loads = [(5, 0, 0), (5, 1e12, 0), (5, 0, 1e11), (5, 2e12, 1e11), (5, 4e12, 1e11), (5, 1e12, 2e11)]
    windows = [
        LoadWindow(seconds=t, flop=f, moved_bytes=b, energy_j=10 * t + 1e-11 * f + 2e-10 * b + 0.01 * (-1) ** i)
        for i, (t, f, b) in enumerate(loads)
    ]
    for name, true in (("idle_power", 10.0), ("flop_energy", 1e-11), ("byte_energy", 2e-10)):
        found = fit_energy(windows)[name]
        assert isinstance(found, Quantity)
        assert found.low is not None
        assert found.high is not None
        assert found.low < true < found.high


def test_loads_that_do_not_differ_tell_nothing() -> None:
    same = [LoadWindow(seconds=5, flop=1e12, moved_bytes=1e10, energy_j=60)] * 6
    assert isinstance(fit_energy(same)["flop_energy"], Absent)
    shrinking = [LoadWindow(seconds=5, flop=f, moved_bytes=b, energy_j=60 - f * 1e-12)
                 for f, b in ((0, 0), (1e12, 0), (0, 1e10), (2e12, 1e10), (3e12, 2e10))]  # fmt: skip
    assert isinstance(fit_energy(shrinking)["flop_energy"], Absent)


def test_each_probe_calls_one_operator_of_the_name_it_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "STREAMED_BYTES", 2**20)
    smallest = {(p.operator, p.dtype, p.operands): p for p in reversed(list(all_probes()))}
    for (operator, dtype, operands), probe in smallest.items():
        timing = time_probe(probe, budget_s=0.0)
        assert (timing.operator, timing.dtype, timing.operands) == (operator, dtype, operands)
        assert timing.seconds > 0
        assert len(timing.sizes) == len(timing.axes)


@pytest.mark.parametrize(("beside_s", "expected"), [(0.001, 1.0), (0.03, 1.0), (0.2, 0.3)])
def test_probes_share_the_time_and_a_slow_machine_leaves_out_no_more_than_it_must(
    monkeypatch: pytest.MonkeyPatch, beside_s: float, expected: float
) -> None:
    clock = [0.0]
    monkeypatch.setattr(operators.time, "perf_counter", lambda: clock[0])

    def timed(probe: object, *, budget_s: float) -> object:
        clock[0] += beside_s + budget_s
        return probe

    monkeypatch.setattr(operators, "time_probe", timed)
    probes = len(list(all_probes()))
    found = operators.time_operators(budget_s=0.06 * probes)
    assert len(found) >= int(expected * probes * 0.95)
    assert clock[0] == pytest.approx(0.06 * probes, rel=0.05)


def test_what_takes_long_is_called_twice_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = next(iter(all_probes()))
    clock, calls = [0.0], [0]
    monkeypatch.setattr(operators.time, "perf_counter", lambda: clock[0])

    def build() -> Callable[[], None]:
        call = probe.build()

        def slow() -> None:
            call()
            calls[0] += 1
            clock[0] += 0.2

        return slow

    assert time_probe(replace(probe, build=build), budget_s=10.0).seconds == pytest.approx(0.2)
    assert calls == [2]


def test_levels_grow_outwards_and_slow_down() -> None:
    caches = [{"level": "1", "type": "Data", "size": "32K", "shared_cpu_list": "0"},
              {"level": "1", "type": "Instruction", "size": "32K", "shared_cpu_list": "0"},
              {"level": "2", "type": "Unified", "size": "512K", "shared_cpu_list": "0-1"}]  # fmt: skip
    levels = measure_levels(caches, 2**27, threads=1)
    assert [level.name for level in levels] == ["L1", "L2", "main"]
    assert [level.holder for level in levels] == ["core", "device", "device"]
    rates = [level.bandwidth_bytes_s for level in levels]
    assert rates == sorted(rates, reverse=True)


def test_too_little_time_is_refused() -> None:
    with pytest.raises(UserError, match="too little time"):
        run_calibration(seconds=1, threads=1)
