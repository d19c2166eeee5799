import contextlib
import signal

import pytest

from fakes.study import FakeLauncher, Silent
from wattention.core.records import CellKey
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_run


def test_a_run_writes_one_record_for_every_cell(tmp_path, spec, silent):
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), silent, resume=False)
    assert len(run.records) == 2 + 2 * 2 * 2
    assert (silent.planned, silent.done) == (10, 0)


def test_an_interrupted_run_keeps_what_is_finished_and_resumes_only_the_rest(tmp_path, spec, silent):
    stop_at = CellKey(kind="lengths", mechanism="flash", block=0)
    with pytest.raises(KeyboardInterrupt):
        run_comparison(RunFolder(tmp_path), spec, FakeLauncher({stop_at: KeyboardInterrupt()}), silent, resume=False)
    kept = [record.key for record in read_run(tmp_path).records]
    assert kept == silent.ran
    again = Silent()
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), again, resume=True)
    assert again.done == len(kept)
    assert not set(again.ran) & set(kept)
    assert len({record.key for record in run.records}) == len(run.records) == 10


def test_an_interrupt_that_python_drops_still_ends_the_run_after_the_record_at_hand(tmp_path, spec, silent):
    class Dropping(FakeLauncher):
        def run(self, cell, **options):
            if cell.key.kind == "train":
                with contextlib.suppress(KeyboardInterrupt):  # as Python does inside a destructor
                    signal.raise_signal(signal.SIGINT)
            return super().run(cell, **options)

    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore Ctrl-C
    try:
        with pytest.raises(KeyboardInterrupt):
            run_comparison(RunFolder(tmp_path), spec, Dropping(), silent, resume=False)
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, outside)
    assert [record.key.kind for record in read_run(tmp_path).records] == ["gate", "gate", "train"]
    assert after is signal.default_int_handler


def test_a_mechanism_that_fails_its_gate_is_never_measured_and_says_which_clause(tmp_path, spec, silent):
    gate = CellKey(kind="gate", mechanism="flash", block=0)

    class Refusing(FakeLauncher):
        def __init__(self, fail):
            super().__init__(fail)
            self.launched = []

        def run(self, cell, **options):
            self.launched.append(cell.key)
            return super().run(cell, **options)

    launcher = Refusing({gate: ("gate_failed", "failed strict_causality")})
    run = run_comparison(RunFolder(tmp_path), spec, launcher, silent, resume=False)
    refused = [record for record in run.records if record.key.mechanism == "flash"]
    assert [key for key in launcher.launched if key.mechanism == "flash"] == [gate]
    assert {record.status for record in refused} == {"gate_failed"}
    assert all("strict_causality" in record.detail for record in refused)
    assert not any(record.phases for record in refused)


def test_a_gate_that_failed_before_an_interruption_still_refuses(tmp_path, spec, silent):
    gate = CellKey(kind="gate", mechanism="flash", block=0)
    stop = CellKey(kind="train", mechanism="baseline", block=0)
    wrong = {gate: ("gate_failed", "failed tokens_mix"), stop: KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        run_comparison(RunFolder(tmp_path), spec, FakeLauncher(wrong), silent, resume=False)
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), silent, resume=True)
    assert {r.status for r in run.records if r.key.mechanism == "flash"} == {"gate_failed"}


def test_a_failing_cell_is_a_result_and_the_run_goes_on(tmp_path, spec, silent):
    lost = CellKey(kind="train", mechanism="baseline", block=1)
    launcher = FakeLauncher({lost: ("out_of_memory", "2 GiB asked, 1 GiB free")})
    run = run_comparison(RunFolder(tmp_path), spec, launcher, silent, resume=False)
    assert len(run.records) == 10
    assert [record.key for record in run.records if record.status != "ok"] == [lost]
