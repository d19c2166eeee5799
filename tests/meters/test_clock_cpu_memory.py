"""Known answers of the clock watch, CPU time, resident memory and tensor memory."""

import multiprocessing
import subprocess
import sys
import time

import pytest
import torch

from wattention.core.quantities import Absent
from wattention.meters import clock, cpu, rss
from wattention.meters.base import Interval
from wattention.meters.tensor_memory import measure_peak_tensor_bytes, measure_tensor_memory, peak_of_running_sum
from wattention.meters.window import Panel

SECOND = 1_000_000_000
ANY = Interval(start_ns=0, end_ns=SECOND)
MIB = 1 << 20


def clocks(monotonic_s, boottime_s, wall_s):
    boottime_ns = None if boottime_s is None else int(boottime_s * SECOND)
    return {"monotonic_ns": monotonic_s * SECOND, "boottime_ns": boottime_ns, "wall_ns": int(wall_s * SECOND)}


@pytest.mark.parametrize(
    ("after", "kinds"),
    [
        ((10, 10, 10), []),
        ((10, 40, 40), ["suspended"]),
        ((10, 10, 70), ["clock_step"]),
        ((10, 10, -50), ["clock_step"]),
        ((10, 10, 10.004), []),  # NTP slewing
        ((10, 40, 10), ["suspended", "clock_step"]),
    ],
)
def test_sleep_and_clock_steps_are_told_apart(after, kinds):
    said = clock.METER.interpret({}, clocks(0, 0, 0), clocks(*after), ANY)
    assert [flag.kind for flag in said.flags] == kinds


def test_without_boottime_sleep_is_absent_and_a_step_is_still_seen():
    said = clock.METER.interpret({}, clocks(0, None, 0), clocks(1, None, 9), ANY)
    assert isinstance(said.readings["suspended_s"], Absent)
    assert [flag.kind for flag in said.flags] == ["clock_step"]


def test_a_busy_loop_costs_user_time_of_this_process():
    with Panel.open("cpu", ["cpu"]) as panel, panel.window() as window:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            sum(range(2000))
    readings = window.readings
    assert 0.19 <= readings["cpu_s"].value < 1.0
    assert readings["cpu_s"].value == pytest.approx(readings["cpu_user_s"].value + readings["cpu_system_s"].value)
    assert readings["cpu_user_s"].value > readings["cpu_system_s"].value >= 0
    assert readings["cores_busy"].value == pytest.approx(readings["cpu_s"].value / readings["time_s"].value)


def test_sleeping_costs_almost_no_cpu_time():
    with Panel.open("cpu", ["cpu"]) as panel, panel.window() as window:
        time.sleep(0.2)
    assert 0 <= window.readings["cpu_s"].value < 0.1


BURN = "import time\nwhile time.process_time() < 0.3: sum(range(2000))"


def test_children_that_ended_inside_the_window_are_counted():
    with Panel.open("cpu", ["cpu"]) as panel, panel.window() as window:
        subprocess.run([sys.executable, "-c", BURN], check=True)
    assert window.readings["cpu_s"].value >= 0.28


def test_children_that_live_on_are_counted():
    with Panel.open("cpu", ["cpu"]) as panel:
        with panel.window() as window:
            child = subprocess.Popen(
                [sys.executable, "-c", BURN + "\nprint('burnt', flush=True)\ninput()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            child.stdout.readline()
        child.communicate(b"\n")
    assert window.readings["cpu_s"].value >= 0.25  # ticks of 10 ms


def test_a_descendant_lost_to_the_tree_gives_absence_and_not_negative_time():
    before = {"user_s": 0.0, "system_s": 0.0, "faults": 0, "living_user_s": 9.0, "living_system_s": 0.0}
    before |= {"living_faults": 0, "living": 1}
    after = {**before, "user_s": 1.0, "living_user_s": 0.0, "living": 0}
    said = cpu.METER.interpret({"source": "s"}, before, after, ANY)
    assert set(said.readings) == set(cpu.METER.readings)
    assert isinstance(said.readings["cpu_s"], Absent)
    assert said.flags[0].kind == "counter_backwards"


def test_fresh_pages_are_counted_as_minor_faults():
    with Panel.open("cpu", ["cpu"]) as panel, panel.window() as window:
        torch.ones(64 * MIB // 4)
    faults = window.readings["minor_faults"].value
    assert faults >= 16  # 64 MiB in pages of at most 4 MiB


def resident_peak(reset_works, monkeypatch):
    if not reset_works:
        monkeypatch.setattr(rss, "_reset_mark", lambda: False)
    with Panel.open("cpu", ["rss"]) as panel:
        torch.ones(256 * MIB // 4)  # an older, higher peak
        with panel.window() as window:
            torch.ones(64 * MIB // 4)
    return window.readings


def test_peak_rss_is_reset_for_each_window(monkeypatch):
    readings = resident_peak(True, monkeypatch)
    if isinstance(readings["peak_rss_bytes"], Absent):
        pytest.skip(readings["peak_rss_bytes"].reason)
    grown = readings["peak_rss_bytes"].value - readings["rss_before_bytes"].value
    assert 60 * MIB <= grown <= 100 * MIB


def test_without_the_reset_an_older_peak_is_not_passed_off_as_this_windows(monkeypatch):
    readings = resident_peak(False, monkeypatch)
    peak = readings["peak_rss_bytes"]
    assert isinstance(peak, Absent)
    assert "clear_refs cannot be written" in peak.reason
    assert "at most that" in peak.reason


def test_without_the_reset_a_rising_mark_is_this_windows_peak():
    before, after = ({"peak_bytes": n, "resident_bytes": None} for n in (10, 30))
    said = rss.METER.interpret({"resettable": False, "reset_file": "f"}, before, after, ANY)
    assert said.readings["peak_rss_bytes"].value == 30
    assert "getrusage" in said.readings["peak_rss_bytes"].source


def test_the_highest_point_of_the_running_sum():
    assert peak_of_running_sum([5, 3, -8, 6]) == 8
    assert peak_of_running_sum([-4, 2]) == 0
    assert peak_of_running_sum([]) == 0


def test_tensor_peak_of_a_known_step():
    kept = torch.ones(3 * MIB // 4)

    def step():
        one = torch.empty(4 * MIB // 4)
        two = torch.empty(8 * MIB // 4)
        del one, two
        torch.empty(10 * MIB // 4)

    memory = measure_tensor_memory(step)
    assert memory.above_start_bytes.value == 12 * MIB
    assert memory.live_before_bytes.value >= kept.untyped_storage().nbytes()
    assert memory.peak_bytes.value == memory.live_before_bytes.value + 12 * MIB


def test_scratch_inside_a_kernel_is_seen():
    q = torch.randn(1, 1, 512, 64)
    scores_bytes = 512 * 512 * 4

    def step():
        torch.ops.aten._scaled_dot_product_attention_math(q, q, q)

    assert measure_tensor_memory(step).above_start_bytes.value >= scores_bytes


def test_gradients_freed_at_the_start_of_a_step_are_subtracted():
    weight = torch.nn.Parameter(torch.ones(4 * MIB // 4))

    def step():
        weight.grad = None
        (weight * 2.0).sum().backward()

    memory = measure_tensor_memory(step)
    # above the start: -4 (old gradient) +4 (product) -4 +4 (new gradient) and a few scalars
    assert memory.above_start_bytes.value < 5 * MIB
    assert "bytes live at its start" in measure_peak_tensor_bytes(step).source


def test_views_are_counted_once():
    base = torch.ones(16 * MIB // 4)
    views = [base[i:] for i in range(10)]
    before = measure_tensor_memory(lambda: None).live_before_bytes.value
    del views, base
    after = measure_tensor_memory(lambda: None).live_before_bytes.value
    assert before - after == 16 * MIB


@pytest.mark.cuda
def test_cuda_marks_are_reset_and_exact():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    with Panel.open("cuda", ["cuda_memory"]) as panel:
        torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        with panel.window() as window:
            torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    readings = window.readings
    assert readings["cuda_peak_allocated_bytes"].value - readings["cuda_before_bytes"].value == 8 * MIB
    assert readings["cuda_peak_reserved_bytes"].value >= readings["cuda_peak_allocated_bytes"].value


def test_spawned_workers_do_not_inherit_anything_that_breaks_the_tree():
    context = multiprocessing.get_context("spawn")
    with Panel.open("cpu", ["cpu"]) as panel, panel.window() as window:
        worker = context.Process(target=time.sleep, args=(0.01,))
        worker.start()
        worker.join()
    assert window.readings["cpu_s"].value > 0
