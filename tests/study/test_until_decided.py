"""Blocks are added until every pair is decided or the budget is spent, on simulated devices."""

import pytest

from fakes.noisy_run import NoisyLauncher
from fakes.study import Silent
from wattention.core.errors import UserError
from wattention.core.records import CellKey
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_run
from wattention.study.until_decided import run_until_decided, say_look, say_stop


def until(folder, spec, launcher, *, labels=("baseline", "a"), resume=False, clock=None, **decide):
    mechanisms = [{"label": label, "source": "sdpa"} for label in labels]
    if not resume:
        spec = spec.replace(mechanisms=mechanisms, measure=spec.measure.replace(lengths=()), decide=decide)
    looks = []
    decided = run_until_decided(
        spec,
        lambda spec, resume: run_comparison(RunFolder(folder), spec, launcher, Silent(), resume=resume),
        resume=resume,
        on_look=looks.append,
        **({} if clock is None else {"clock": clock}),
    )
    return decided, looks


def test_blocks_are_added_until_the_difference_is_proved(tmp_path, spec):
    decided, looks = until(tmp_path, spec, NoisyLauncher({"a": 0.95}))
    assert decided.stop == "decided"
    assert decided.look.pairs[0].outcome == "less"
    assert [look.blocks for look in looks] == list(range(2, decided.look.blocks + 1))
    assert 4 <= decided.look.blocks < 12
    assert (decided.run.spec.blocks, decided.run.spec.grown_from) == (decided.look.blocks, 2)
    assert say_stop(decided) == f"stopped after {decided.look.blocks} blocks: every pair is decided by time"
    assert "open: a against baseline" in say_look(looks[0])


def test_equals_end_as_equal_within_the_margin(tmp_path, spec):
    decided, _ = until(tmp_path, spec, NoisyLauncher(noise=0.005))
    assert (decided.stop, decided.look.pairs[0].outcome) == ("decided", "equal")


def test_the_budget_of_blocks_ends_it(tmp_path, spec):
    decided, _ = until(tmp_path, spec, NoisyLauncher(noise=0.3), max_blocks=4)
    assert (decided.stop, decided.look.blocks) == ("blocks", 4)
    assert "--max-blocks 4: 1 of 1 pairs are undecided by time" in say_stop(decided)
    again, _ = until(
        tmp_path, decided.run.spec.replace(decide={"max_blocks": 6}), NoisyLauncher(noise=0.3), resume=True
    )
    assert (again.look.blocks, again.run.spec.grown_from) == (6, 2)
    with pytest.raises(UserError, match="6 blocks, at most 5"):
        until(tmp_path, again.run.spec.replace(decide={"max_blocks": 5}), NoisyLauncher(), resume=True)


def test_a_block_that_would_end_too_late_is_not_begun(tmp_path, spec):
    now = [0.0]

    class Slow(NoisyLauncher):
        def run(self, cell, **options):
            now[0] += 10.0 if cell.key.kind == "train" else 0.0
            return super().run(cell, **options)

    decided, _ = until(tmp_path, spec, Slow(noise=0.3), clock=lambda: now[0], max_time_s=75.0)
    assert (decided.stop, decided.look.blocks) == ("time", 3)  # 20 s a block: a fourth would end at 80 s
    assert now[0] == 60.0


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, spec):
    truth = {"a": 0.95}
    whole, _ = until(tmp_path / "whole", spec, NoisyLauncher(truth))
    stop = CellKey(kind="train", mechanism="a", block=3)
    with pytest.raises(KeyboardInterrupt):
        until(tmp_path / "cut", spec, NoisyLauncher(truth, fail={stop: KeyboardInterrupt()}))
    kept = read_run(tmp_path / "cut")
    assert (kept.spec.blocks, kept.spec.decide is None) == (4, False)
    launcher = NoisyLauncher(truth)
    resumed, _ = until(tmp_path / "cut", kept.spec, launcher, resume=True)
    assert resumed.look == whole.look
    assert {r.key for r in resumed.run.records} == {r.key for r in whole.run.records}
    assert not {r.key for r in kept.records} & set(launcher.launched)


def test_what_cannot_be_measured_is_not_waited_for(tmp_path, spec):
    decided, looks = until(tmp_path, spec, NoisyLauncher(), by="energy")
    assert (decided.stop, len(looks)) == ("not measurable", 1)
    assert "no pair can be decided by energy: a: the energy phase recorded no energy_j" in say_stop(decided)
    gate = {CellKey(kind="gate", mechanism="b", block=0): ("gate_failed", "failed causality")}
    launcher = NoisyLauncher({"a": 0.9}, fail=gate)
    decided, _ = until(tmp_path / "refused", spec, launcher, labels=("baseline", "a", "b"))
    assert decided.stop == "decided"
    assert say_stop(decided).endswith("every pair is decided by time; 1 without numbers")


def test_runs_of_equals_seldom_end_with_a_difference(tmp_path, spec):
    """From launcher to verdict; the thousand-fold simulation of the same rule is in tests/analysis/test_paired.py."""
    outcomes = [
        until(tmp_path / str(seed), spec, NoisyLauncher(seed=seed, noise=0.02), max_blocks=8)[0].look.pairs[0].outcome
        for seed in range(12)
    ]
    assert not {"less", "more"} & set(outcomes)
