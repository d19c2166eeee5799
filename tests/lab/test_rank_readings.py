"""Simulated meters of several ranks: every device once, every machine once, and nothing lost without a word."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattention.core.quantities import Absent, Quantity, measured
from wattention.core.records import Phase
from wattention.lab.parallel.readings import Seat, merge_phases


def seat(rank, *, local=None, machine="a", device=None, domains=("package0", "dram0", "psys"), missing=None):
    gpu = {} if device is None else {"gpu0": True}
    return Seat(
        rank=rank,
        local_rank=rank if local is None else local,
        host=f"host-{machine}",
        machine=machine,
        cores=8,
        device=device or "cpu",
        domains={**gpu, **{name: name != "psys" for name in domains}},
        missing=missing or {},
    )


def joules(value, step=0.5):
    return Quantity(value=value, unit="J", origin="measured", source="counter", low=value - step, high=value + step)


def phase(flags=(), **readings):
    units = {"s": "s", "bytes": "byte", "share": "1", "j": "J"}
    return Phase(
        readings={
            name: measured(value, units.get(name.rsplit("_", 1)[-1], "1"), "meter")
            if isinstance(value, float)
            else value
            for name, value in readings.items()
        },
        flags=flags,
    )


def energies(package, gpu=None, total=None):
    found = {"energy_package0_j": joules(package), "energy_dram0_j": joules(2.0), "energy_psys_j": joules(900.0)}
    if gpu is not None:
        found["energy_gpu0_j"] = joules(gpu)
    return phase(energy_j=joules(total or package + 2 + (gpu or 0)), **found)


def test_two_ranks_on_one_cpu_machine_count_it_once():
    merged = merge_phases([seat(0), seat(1)], [energies(10.0), energies(10.5)]).readings
    assert merged["energy_j"].value == 12.0
    assert (merged["energy_j"].low, merged["energy_j"].high) == (11.0, 13.0)
    assert merged["energy_package0_j"].value == 10.0
    assert merged["energy_psys_j"].value == 900.0
    assert "every device once: package0, dram0" in merged["energy_j"].source


def test_every_gpu_once_though_each_rank_calls_its_own_gpu0_and_two_share_one():
    seats = [seat(0, device="U1"), seat(1, device="U2"), seat(2, device="U2")]
    merged = merge_phases(seats, [energies(10.0, 100.0), energies(10.0, 200.0), energies(10.0, 201.0)]).readings
    assert merged["energy_j"].value == 10 + 2 + 100 + 200
    assert merged["energy_gpu0_of_rank0_j"].value == 100
    assert merged["energy_gpu0_of_rank1_j"].value == 200
    assert "energy_gpu0_of_rank2_j" not in merged


def test_two_machines_are_two_packages_and_the_lowest_local_rank_answers():
    seats = [seat(0, local=1, machine="a"), seat(1, local=0, machine="a"), seat(2, local=0, machine="b")]
    merged = merge_phases(seats, [energies(11.0), energies(10.0), energies(20.0)]).readings
    assert merged["energy_j"].value == 10 + 2 + 20 + 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=8))
def test_the_total_is_that_of_a_list_of_devices(places):
    """Whoever sits where: sum over distinct GPUs, and over machines."""
    seats = [seat(r, machine=str(m), device=f"U{m}{g}") for r, (m, g) in enumerate(places)]
    phases = [energies(float(10 + m), float(100 + 10 * m + g)) for m, g in places]
    merged = merge_phases(seats, phases).readings
    expected = sum(100 + 10 * m + g for m, g in set(places)) + sum(12 + m for m in {m for m, _ in places})
    assert merged["energy_j"].value == pytest.approx(expected)


def test_a_domain_that_is_absent_makes_the_total_absent():
    lost = energies(10.0, 100.0)
    lost = replace(lost, readings={**lost.readings, "energy_gpu0_j": Absent("went backwards")})
    merged = merge_phases([seat(0, device="U1"), seat(1, device="U2")], [energies(10.0, 100.0), lost]).readings
    assert merged["energy_j"] == Absent("the sum lacks gpu0_of_rank1: went backwards")


def test_a_rank_without_any_counter_makes_the_total_absent_and_all_without_keep_the_reason():
    bare = seat(1, machine="b", domains=())
    nothing = phase(energy_j=Absent("no RAPL"))
    assert (
        "rank 1 on host-b: no RAPL"
        in merge_phases([seat(0), bare], [energies(10.0), nothing]).readings["energy_j"].reason
    )
    merged = merge_phases([seat(0, domains=()), bare], [nothing, nothing])
    assert merged.readings["energy_j"] == Absent("no RAPL")


def test_time_is_the_slowest_cpu_seconds_are_summed_and_peaks_are_told_apart():
    merged = merge_phases(
        [seat(0), seat(1)],
        [
            phase(time_s=2.0, cpu_s=1.5, cores_busy=0.75, peak_rss_bytes=100.0),
            phase(time_s=3.0, cpu_s=3.0, cores_busy=1.0, peak_rss_bytes=80.0),
        ],
    ).readings
    assert merged["time_s"].value == 3.0
    assert merged["cpu_s"].value == 4.5
    assert merged["cores_busy"].value == 1.5
    assert merged["peak_rss_bytes"].value == 100
    assert merged["sum_of_peak_rss_bytes"].value == 180
    assert merged["peak_rss_bytes"].source.startswith("worst of 2 ranks")


def test_a_reading_that_one_rank_lacks_is_absent_and_names_it():
    merged = merge_phases([seat(0), seat(1)], [phase(cpu_s=1.0), phase(cpu_s=Absent("lost"))]).readings
    assert merged["cpu_s"] == Absent("rank 1 on host-a: lost")


def test_neighbouring_ranks_are_not_strangers_and_strangers_still_are():
    company = ({"kind": "company", "message": "other processes used 30%"},)
    slept = ({"kind": "suspended", "message": "the machine slept"},)

    def one(share, flags):
        reading = Quantity(
            value=share, unit="1", origin="measured", source="/proc/stat", low=share - 0.01, high=share + 0.01
        )
        return phase(time_s=10.0, cpu_s=20.0, other_cpu_share=reading, flags=flags)

    # 8 cores x 10 s; the other rank's 20 s are a quarter of the machine
    quiet = merge_phases([seat(0), seat(1)], [one(0.26, company), one(0.26, company + slept)])
    assert quiet.readings["other_cpu_share"].value == pytest.approx(0.01)
    assert [flag["message"] for flag in quiet.flags] == ["rank 1: the machine slept"]
    busy = merge_phases([seat(0), seat(1)], [one(0.45, company), one(0.45, company)])
    assert busy.readings["other_cpu_share"].value == pytest.approx(0.20)
    assert [flag["kind"] for flag in busy.flags] == ["company"]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("gpu_clock_hz", (2.0, 1.0), 1.0),
        ("gpu_temperature_celsius", (50.0, 60.0), 60.0),
        ("wall_clock_step_s", (0.1, 0.2), 0.1),
    ],
)
def test_of_gauges_the_one_that_matters(name, values, expected):
    merged = merge_phases([seat(0), seat(1)], [phase(**{name: value}) for value in values]).readings
    assert merged[name].value == expected
