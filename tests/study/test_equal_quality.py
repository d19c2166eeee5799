"""Quality held equal, from options to tables: planned, decided from records, resumed, shown."""

import io
import json
from dataclasses import replace

import pytest

from fakes.study import FakeLauncher, Silent, fake_record, fake_target
from wattention.analysis.equal_quality import summarise_quality
from wattention.analysis.summary import compare_records
from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity
from wattention.core.records import CellKey
from wattention.report.documents.run import run_document
from wattention.report.json.comparison import comparison_json
from wattention.report.renderers.csv import csv_text
from wattention.report.renderers.terminal import print_document
from wattention.study.configure import DEFAULTS, build_run_spec
from wattention.study.decisions import Undecided, automatic_target, decide
from wattention.study.grid import plan_cells
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder, read_run

QUALITY = {
    "mechanisms": ["flash", "baseline", "sdpa"],
    "measure": {"lengths": ()},
    "target": {"loss": "auto"},
    "tune": {"learning_rates": (1e-3, 3e-3, 1e-2)},
    "seeds": 2,
    "reruns": 2,
}


def build(*settings, **layer):
    return build_run_spec([DEFAULTS, QUALITY, layer], settings, threads=1)


class Stubborn(FakeLauncher):
    """A launcher under which a mechanism does not reach the target in some blocks."""

    def __init__(self, fail=None, never=()):
        super().__init__(fail)
        self.never = {CellKey(kind="target", mechanism=m, block=b) for m, blocks in never for b in blocks}

    def run(self, cell, **options):
        record = super().run(cell, **options)
        if cell.key not in self.never:
            return record
        phases, facts = fake_target(cell, 1.5, reached=False)
        return replace(record, phases=phases, facts=facts)


def finished(folder, spec, launcher=None, resume=False):
    return run_comparison(RunFolder(folder), spec, launcher or FakeLauncher(), Silent(), resume=resume)


def test_searches_come_before_the_blocks_and_targets_after_them_all():
    kinds = [cell.key.kind for cell in plan_cells(build())]
    assert kinds == ["gate"] * 3 + ["tune"] * 3 + ["train"] * 12 + ["target"] * 12
    cells = plan_cells(build())
    assert len({cell.key for cell in cells}) == len(cells)
    for block in range(4):
        ours = [cell.key.mechanism for cell in cells if cell.key.kind == "target" and cell.key.block == block]
        assert sorted(ours) == ["baseline", "flash", "sdpa"]


def test_blocks_in_a_row_share_a_seed():
    spec = build(seed=7)
    assert (spec.blocks, spec.reruns, spec.seeds) == (4, 2, 2)
    assert [spec.seed_of(block) for block in range(4)] == [7, 7, 8, 8]
    assert {cell.training.init_seed for cell in plan_cells(spec) if cell.key.block == 3} == {8}


@pytest.mark.parametrize(
    ("layer", "settings", "words"),
    [
        ({"blocks": 5}, (), "blocks and seeds disagree"),
        ({"seeds": None, "blocks": 3}, (), "no whole number of seeds"),
        ({"reruns": 0}, (), "whole numbers, 1 or more"),
        ({"target": {"loss": -1.0}}, (), "above 0, or auto"),
        ({"tune": {"learning_rates": (1e-3, 1e-3)}}, (), "different numbers above 0"),
        ({"tune": {"learning_rates": ()}}, (), "learning_rates"),
        ({}, ("target.patience=0",), "patience"),
        ({}, ("target.smothing=2",), "smothing"),
        ({"match": "size"}, (), "'named', 'params' or 'flops'"),
    ],
)
def test_bad_combinations_are_explained(layer, settings, words):
    with pytest.raises(UserError) as caught:
        build(*settings, **layer)
    assert words in str(caught.value)


def test_options_of_a_mode_that_was_not_asked_for_say_how_to_ask():
    for layer, words in (
        ({"target": {"max_tokens": 10}}, "add --target-loss X in bits per byte, or auto"),
        ({"tune": {"steps": 10}}, "add --learning-rates"),
    ):
        with pytest.raises(UserError, match=words):
            build_run_spec([DEFAULTS, layer], [], threads=1)


def test_each_mechanism_trains_at_the_rate_its_search_chose_and_to_one_target(tmp_path):
    launcher = FakeLauncher()
    run = finished(tmp_path, build(), launcher)
    assert all(record.status == "ok" for record in run.records)
    rates = {
        (c.key.kind, c.key.mechanism, c.learning_rate) for c in launcher.cells if c.key.kind in ("train", "target")
    }
    assert rates == {(kind, m, r) for kind in ("train", "target") for m, r in CHOSEN.items()}
    trained = next(c for c in launcher.cells if c.key.kind == "train" and c.key.mechanism == "baseline")
    assert trained.training.learning_rate == 1e-3
    # the baseline's loss is 2 + seconds / 100, with 2, 2.02, 2.04 and 2.06 s in the four blocks
    targets = {cell.target_loss for cell in launcher.cells if cell.key.kind == "target"}
    assert list(targets) == [pytest.approx(2.0203)]


CHOSEN = {"baseline": 1e-3, "flash": 3e-3, "sdpa": 3e-3}


def test_a_stated_target_is_not_touched_by_the_records(tmp_path):
    launcher = FakeLauncher()
    finished(tmp_path, build(target={"loss": 2.5}), launcher)
    assert {c.target_loss for c in launcher.cells if c.key.kind == "target"} == {2.5}


def test_an_automatic_target_once_used_stands_when_blocks_are_added():
    spec = build()
    cells = {cell.key: cell for cell in plan_cells(spec)}
    train = [fake_record(cell) for cell in cells.values() if cell.key.kind == "train"]
    first = automatic_target(spec, [r for r in train if r.key.block == 0])
    used = cells[CellKey(kind="target", mechanism="flash", block=0)].replace(target_loss=first)
    assert automatic_target(spec, [*train, fake_record(used)]) == first
    assert automatic_target(spec, train) != first


def test_a_search_that_found_nothing_refuses_what_depends_on_it(tmp_path):
    lost = CellKey(kind="tune", mechanism="flash", block=0)
    run = finished(tmp_path, build(), FakeLauncher({lost: ("diverged", "training diverged at every rate")}))
    refused = [r for r in run.records if r.key.mechanism == "flash" and r.key.kind in ("train", "target")]
    assert len(refused) == 8
    assert {r.status for r in refused} == {"diverged"}
    assert all("its search for a learning rate ended so: training diverged at every rate" in r.detail for r in refused)
    assert sum(r.status == "ok" for r in run.records) == 3 + 2 + 16


def test_without_the_reference_there_is_no_automatic_target(tmp_path):
    fail = {CellKey(kind="train", mechanism="baseline", block=b): ("out_of_memory", "2 GiB") for b in range(4)}
    run = finished(tmp_path, build(), FakeLauncher(fail))
    targets = [r for r in run.records if r.key.kind == "target"]
    assert {r.status for r in targets} == {"error"}
    assert all("no training cell of it tells one" in r.detail for r in targets)


def test_every_cell_resumes_with_what_was_decided_before(tmp_path):
    spec = build()
    stop = CellKey(kind="target", mechanism="sdpa", block=1)
    with pytest.raises(KeyboardInterrupt):
        finished(tmp_path, spec, FakeLauncher({stop: KeyboardInterrupt()}))
    before = len(read_run(tmp_path).records)
    launcher = FakeLauncher()
    run = finished(tmp_path, spec, launcher, resume=True)
    assert len(run.records) == len(plan_cells(spec))
    assert len(launcher.cells) == len(plan_cells(spec)) - before
    assert {r.facts["target"]["heldout_bits_per_byte"] for r in run.records if r.key.kind == "target"} == {
        launcher.cells[0].target_loss
    }
    assert all(cell.learning_rate == CHOSEN[cell.key.mechanism] for cell in launcher.cells)


def test_a_cell_that_depends_on_nothing_is_left_as_it_is():
    spec = build_run_spec([DEFAULTS], [], threads=1)
    assert all(decide(cell, ()) == cell for cell in plan_cells(spec))
    undecided = decide(next(c for c in plan_cells(build()) if c.key.kind == "train"), ())
    assert isinstance(undecided, Undecided)


def test_reruns_of_a_seed_are_no_further_evidence_of_quality(tmp_path):
    twice = finished(tmp_path / "a", build())
    once = finished(tmp_path / "b", build(reruns=1))
    pair = [summarise_quality(run.spec, run.records).target.mechanisms["flash"] for run in (twice, once)]
    widths = [one.ratios["tokens"] for one in pair]
    assert widths[0] == widths[1], "the tokens of a seed are the same in each of its runs"


def test_where_all_reach_it_prices_are_paired_within_seeds(tmp_path):
    run = finished(tmp_path, build())
    track = summarise_quality(run.spec, run.records).target
    flash = track.mechanisms["flash"]
    assert (flash.reached, flash.blocks) == (4, 4)
    assert flash.ratios["time_s"].value == pytest.approx(0.5)
    assert flash.ratios["time_s"].limit == "exact"
    assert not flash.ratios["time_s"].tie
    assert flash.ratios["tokens"].value == pytest.approx(1.0)
    assert flash.ratios["tokens"].tie
    assert track.mechanisms["baseline"].ratios["time_s"] is None
    assert flash.evaluation_s.value == 0.5


def test_what_did_not_reach_it_is_censored_never_infinite_and_never_averaged(tmp_path):
    run = finished(tmp_path, build(), Stubborn(never=[("flash", (0, 1))]))
    track = summarise_quality(run.spec, run.records).target
    flash = track.mechanisms["flash"]
    assert (flash.reached, flash.blocks) == (2, 4)
    assert flash.prices["tokens"] == Absent("in 2 of 4 blocks: not reached within 2000 tokens: best 2.2")
    ratio = flash.ratios["tokens"]
    # twice the reference's tokens were spent in vain in half of the blocks
    assert (ratio.limit, ratio.tie) == ("at_least", True)
    assert ratio.value == pytest.approx(2**0.5)
    assert track.mechanisms["sdpa"].ratios["tokens"].limit == "exact"


def test_a_reference_that_gives_up_bounds_the_others_from_above(tmp_path):
    never = [("baseline", (0, 1, 2, 3)), ("flash", (3,))]
    run = finished(tmp_path, build(), Stubborn(never=never))
    mechanisms = summarise_quality(run.spec, run.records).target.mechanisms
    assert mechanisms["sdpa"].ratios["tokens"].limit == "at_most"
    assert mechanisms["sdpa"].ratios["tokens"].value == pytest.approx(0.5)
    assert mechanisms["flash"].ratios["tokens"] is None, "both gave up somewhere: nothing is said"


def printed(run):
    out = io.StringIO()
    print_document(run_document(run), file=out, width=220)
    return out.getvalue()


def test_tables_say_what_was_held_equal_and_what_was_not_reached(tmp_path):
    run = finished(tmp_path, build(), Stubborn(never=[("flash", (0, 1, 2, 3)), ("sdpa", (3,))]))
    text = printed(run)
    assert "To the same held-out loss" in text
    assert "not reached" in text
    assert "3 of 4 blocks" in text
    assert ">2" in text
    assert "such ratios are limits" in text
    assert "the mean held-out loss of baseline after the fixed 73728 tokens" in text
    assert "diverged" in text, "a rate that diverged is shown as such"
    assert "baseline: the best rate is the last one tried at its end of the list" in text
    assert "over seeds" in text
    assert "Held-out loss on the way to the target" in text


def test_a_rerun_that_does_not_repeat_is_named(tmp_path):
    run = finished(tmp_path, build())
    seeds = summarise_quality(run.spec, run.records).seeds
    assert seeds["flash"].repeats is False  # the fake's loss grows with the block
    assert seeds["flash"].difference == "seed 0: held-out losses differ by 0.0001 bit/byte"
    assert "NO" in printed(run)
    equal = [replace(r, phases=run.records[6].phases) if r.key.kind == "train" else r for r in run.records]
    assert summarise_quality(run.spec, equal).seeds["flash"].repeats is True


def test_the_new_numbers_are_in_json_and_in_tidy_rows(tmp_path):
    run = finished(tmp_path, build(), Stubborn(never=[("flash", (0,))]))
    comparison = compare_records(run.spec, run.records)
    held = json.loads(comparison_json(comparison, folder=tmp_path))["equal_quality"]
    assert held["target"]["mechanisms"]["sdpa"]["ratios"]["time_s"]["value"] == pytest.approx(0.75)
    assert "absent" in held["target"]["mechanisms"]["flash"]["prices"]["energy_j"]
    assert held["searches"]["baseline"]["energy_j"]["value"] == pytest.approx(60.0)
    assert held["seeds"]["sdpa"]["step_s"]["over_reruns"]["unit"] == "s"
    rows = csv_text(run_document(run))
    for words in ("target,sdpa,time_s,", "tune,baseline,chosen,0.001", "seeds,flash,loss_seeds,"):
        assert words in rows
    assert "not reached within 2000 tokens" in rows


def test_runs_that_hold_nothing_equal_have_no_sections_of_it(tmp_path):
    spec = build_run_spec([DEFAULTS, {"mechanisms": ["baseline"], "measure": {"lengths": ()}}], [], threads=1)
    run = finished(tmp_path, spec)
    text = printed(run)
    for title in ("To the same held-out loss", "Matched sizes", "Learning rates", "Seeds and reruns", "Recall against"):
        assert title not in text
    assert isinstance(compare_records(run.spec, run.records).mechanisms[0].quantities["step_s"], Quantity)
