"""Pairs of whole runs, made by a fake launcher with a known truth."""

import json

import pytest

from fakes.noisy_run import NoisyLauncher
from fakes.study import Silent
from wattention.analysis.pairs import compare_pairs
from wattention.analysis.summary import compare_records
from wattention.core.quantities import Absent
from wattention.core.records import CellKey
from wattention.report.json.comparison import comparison_json
from wattention.report.renderers.terminal import print_sections
from wattention.report.sections.pairs import pair_sections, verdict_words
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder


def finish(folder, spec, *, labels=("baseline", "again", "faster"), blocks=10, resume=False, grow_to=None, **device):
    mechanisms = [{"label": label, "source": "sdpa"} for label in labels]
    spec = spec.replace(mechanisms=mechanisms, blocks=blocks, measure=spec.measure.replace(lengths=()))
    launcher = NoisyLauncher({"faster": 0.97}, **device)
    run = run_comparison(RunFolder(folder), spec, launcher, Silent(), resume=resume)
    if grow_to is not None:
        run = run_comparison(RunFolder(folder), run.spec.replace(blocks=grow_to), launcher, Silent(), resume=True)
    return run


def times(run):
    return {pair.label: pair for pair in compare_pairs(run.spec, run.records)["step_s"]}


def test_an_a_a_pair_is_equal_and_three_percent_are_found(tmp_path, spec):
    pairs = times(finish(tmp_path, spec))
    assert pairs["again"].outcome == "equal"
    assert pairs["faster"].outcome == "less"
    assert pairs["faster"].ratio.low <= 0.97 <= pairs["faster"].ratio.high
    assert pairs["faster"].bootstrap.low <= 0.97 <= pairs["faster"].bootstrap.high
    assert pairs["faster"].plan.more_blocks == 0
    assert 1.01 < pairs["again"].detectable < 1.03


@pytest.mark.parametrize("seed", range(5))
def test_a_a_runs_from_launcher_to_table_are_ties(tmp_path, spec, seed):
    run = finish(tmp_path, spec, labels=("baseline", "a", "b", "c"), blocks=4, noise=0.03, seed=seed)
    assert all(pair.outcome in ("undecided", "equal") for pair in times(run).values())
    assert all(m.time_ratio.tie for m in compare_records(run.spec, run.records).mechanisms[1:])


def test_few_blocks_say_in_words_why_there_is_no_bootstrap_and_how_many_decide(tmp_path, spec):
    run = finish(tmp_path, spec, blocks=2, noise=0.03)
    pair = times(run)["faster"]
    assert pair.outcome == "undecided"
    assert pair.bootstrap == Absent("2 blocks, and a bootstrap takes 8")
    assert pair.plan.more_blocks > pair.plan.new_run_blocks > 2


def test_a_run_that_grew_after_a_look_is_judged_by_the_rule_that_allows_for_it(tmp_path, spec):
    fixed = times(finish(tmp_path / "fixed", spec))["faster"]
    run = finish(tmp_path / "grown", spec, blocks=4, grow_to=10)
    grown = times(run)["faster"]
    assert (fixed.rule, grown.rule) == ("one look", "every block")
    assert grown.ratio.value == fixed.ratio.value
    assert grown.ratio.low < fixed.ratio.low
    assert grown.p_holm > fixed.p_holm
    notes = compare_records(run.spec, run.records).notes
    assert any("(4 at first, now 10)" in note for note in notes)


def test_disturbed_windows_are_kept_and_the_answer_without_them_stands_beside(tmp_path, spec):
    run = finish(tmp_path, spec, flagged={("faster", 3): 1.5, ("faster", 7): 1.4})
    pair = times(run)["faster"]
    assert (pair.blocks, pair.outcome) == (10, "undecided")
    assert pair.rules == {"company": 2}
    assert (pair.without_flagged.blocks, pair.without_flagged.outcome) == (8, "less")
    assert pair.changes_without_flagged
    assert times(run)["again"].without_flagged is None
    data = json.loads(
        comparison_json(
            compare_records(run.spec, run.records), folder=tmp_path, pairs=compare_pairs(run.spec, run.records)
        )
    )
    stored = next(p for p in data["pairs"] if p["pair"] == ["faster", "baseline"] and p["measure"] == "step_s")
    assert stored["flagged_by"] == {"company": 2}
    assert (stored["verdict"], stored["without_flagged"]["verdict"]) == ("undecided", "less")
    section = next(s for s in pair_sections(run.spec, compare_pairs(run.spec, run.records)) if s.key == "disturbed")
    assert not section.folded
    assert "The verdict changes for faster / baseline: time per step" in section.notes[0]


def test_the_main_table_says_which_of_its_verdicts_rest_on_disturbed_windows(tmp_path, spec):
    run = finish(tmp_path, spec, flagged={("faster", 3): 1.5, ("faster", 7): 1.4})
    comparison = compare_records(run.spec, run.records)
    faster = next(m for m in comparison.mechanisms if m.label == "faster")
    assert faster.time_ratio.tie
    assert not faster.time_ratio_without_flagged.tie
    assert any(
        note.startswith("faster: its time ties with the reference's; without disturbed") for note in comparison.notes
    )
    clean = finish(tmp_path / "clean", spec)
    assert all(m.time_ratio_without_flagged is None for m in compare_records(clean.spec, clean.records).mechanisms)


def test_a_pair_without_numbers_says_why(tmp_path, spec):
    fail = {CellKey(kind="train", mechanism="faster", block=b): ("out_of_memory", "2 GiB asked") for b in range(4)}
    run = finish(tmp_path, spec, blocks=4, fail=fail)
    pair = times(run)["faster"]
    assert (pair.outcome, pair.why) == ("no numbers", "no training cell of faster finished")
    energy = compare_pairs(run.spec, run.records, keys=["energy_per_token_j"])["energy_per_token_j"]
    assert energy[0].why == "again: the energy phase recorded no energy_j"


def test_all_pairs_are_judged_when_asked_for(tmp_path, spec):
    run = finish(tmp_path, spec.replace(decide={"pairs": "all"}))
    assert len(compare_pairs(run.spec, run.records)["step_s"]) == 3


def test_the_section_states_verdicts_in_words(tmp_path, spec, capsys):
    run = finish(tmp_path, spec)
    sections = pair_sections(run.spec, compare_pairs(run.spec, run.records))
    print_sections(sections, width=200)
    text = capsys.readouterr().out
    assert "Which pairs are decided" in text
    assert "equal within 3 %" in text
    assert "2 of 2 pairs are decided in time per step" in text
    assert verdict_words(times(run)["faster"], 0.03) == "faster"
    assert sections[0].detail
    asked = run.spec.replace(decide={})
    assert not pair_sections(asked, compare_pairs(asked, run.records))[0].detail
