"""Figures say what they find, carry their data, and appear only when the run has it."""

from dataclasses import replace

import pytest

from fakes.report_run import full_run
from fakes.study import FakeLauncher, Silent
from wattention.analysis.summary import compare_records
from wattention.core.quantities import Quantity
from wattention.report.document import Figure
from wattention.report.documents.run import run_document
from wattention.report.figures import data_movement
from wattention.report.renderers.html.page import html_page
from wattention.report.wording import list_names, times
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder


def figures(run) -> dict[str, Figure]:
    return {figure.key: figure for section in run_document(run).sections for figure in section.figures}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return figures(full_run(tmp_path_factory.mktemp("figures") / "r"))


def test_a_full_run_has_all_figures(drawn):
    assert list(drawn) == [
        "energy-quality",
        "power-time",
        "length-time",
        "length-memory",
        "loss-curves",
        "block-differences",
        "memory-parts",
        "flop-parts",
    ]


def test_figures_without_data_are_not_drawn(tmp_path, spec):
    run = run_comparison(RunFolder(tmp_path), spec, FakeLauncher(), Silent(), resume=False)
    assert list(figures(run)) == ["length-time", "length-memory", "block-differences"]
    assert figures(replace(run, records=())) == {}
    assert "Figures" not in [section.title for section in run_document(replace(run, records=())).sections]


def test_a_run_can_be_shown_after_every_cell(tmp_path):
    run = full_run(tmp_path / "r")
    for done in range(len(run.records) + 1):
        assert html_page(run_document(replace(run, records=run.records[:done]))).startswith("<!doctype html>")


def test_every_series_has_its_numbers_in_the_table(drawn):
    for figure in drawn.values():
        cells = [cell.reading for row in figure.table.rows for cell in row]
        assert any(isinstance(reading, Quantity) for reading in cells), figure.key
        for view in figure.views:
            assert view.series
            assert all(series.hover for series in view.series if not series.quiet)


def test_captions_state_the_findings(drawn):
    assert drawn["energy-quality"].caption.startswith("flash has both the lowest loss and the least energy")
    assert "Time per token differs by up to 2.0x, power by up to 1.00x" in drawn["power-time"].caption
    assert "mostly differences in time" in drawn["power-time"].caption
    assert drawn["length-time"].caption == "Faster than baseline: at every length from 256 tokens on flash and sdpa."
    assert "When flash is through, after 1.10 s, baseline has seen" in drawn["loss-curves"].caption
    assert drawn["block-differences"].caption.startswith(
        "flash and sdpa took less time than baseline. Blocks disagree about a ratio by at most 0.0 %"
    )
    assert "(flash) to" in drawn["memory-parts"].caption
    assert "executes 1.25x of what its model asks for" in drawn["flop-parts"].caption


def test_a_caption_about_blocks_says_what_the_table_says(tmp_path):
    """A tie is not called faster because it happened to be so in every block."""
    run = full_run(tmp_path / "r", blocks=1)
    caption = figures(run)["block-differences"].caption
    assert caption.startswith("flash and sdpa tie: all blocks point one way, too few to prove it.")


def test_an_estimated_power_is_said_to_be_a_models(tmp_path):
    drawn = figures(full_run(tmp_path / "r", energy="estimated"))
    assert "The power is a model's" in drawn["power-time"].caption
    assert "Energy is an estimate" in drawn["energy-quality"].how
    assert not any(series.low for series in drawn["energy-quality"].views[0].series)
    without = figures(full_run(tmp_path / "s", energy="absent"))
    assert not {"energy-quality", "power-time"} & set(without)
    assert [view.label for view in without["loss-curves"].views] == ["tokens", "seconds"]


def test_an_interpolated_crossing_stands_on_the_rivals_curve(tmp_path):
    run = full_run(tmp_path / "r")
    late = []
    for record in run.records:
        if record.key.kind == "lengths" and record.key.mechanism == "flash":
            slow = replace(
                record.phases["256"],
                readings={
                    **record.phases["256"].readings,
                    "layer_time_s": replace(record.phases["256"].readings["layer_time_s"], value=8.0),
                },
            )
            late.append(replace(record, phases={**record.phases, "256": slow}))
        else:
            late.append(record)
    figure = figures(replace(run, records=tuple(late)))["length-time"]
    (stem,) = [series for series in figure.views[0].series if series.quiet]
    assert "flash faster than baseline from about 406 tokens" in stem.name  # between 256 and 512, on log axes
    baseline = next(series for series in figure.views[0].series if series.name == "baseline")
    assert baseline.y[0] < stem.y[0] < baseline.y[1]
    assert "from about 406 tokens flash" in figure.caption


def test_data_movement_names_its_machine_and_whom_it_leaves_out(tmp_path):
    run = full_run(tmp_path / "r")
    records = []
    for record in run.records:
        host = {**record.environment["host"], "caches": [{"level": "2", "size": "64K"}]}
        kernel = {"flash": "flash (CPU)"}.get(record.key.mechanism, "another")
        records.append(
            replace(record, environment={**record.environment, "host": host}, facts={**record.facts, "kernel": kernel})
        )
    figure = data_movement.draw(compare_records(run.spec, records), records)
    assert "64.0 KiB or 16384 words" in figure.how
    assert "not a measurement" in figure.how
    assert "Not placed, with reasons in the table: baseline and sdpa." in figure.how
    assert figure.caption.startswith("Over the fewest words that any algorithm of its class could move: flash ")


def test_words():
    assert list_names(["a"]) == "a"
    assert list_names(["a", "b", "c"]) == "a, b and c"
    assert [times(1.234), times(1.996), times(9.96), times(31.4)] == ["1.23x", "2.0x", "10x", "31x"]
