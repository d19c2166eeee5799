"""The energy of a run in its report: figures that appear with their data, ratios, what a joule contains, carbon."""

import itertools
import json
from dataclasses import replace

import pytest

from fakes.energy_run import energy_run
from fakes.report_run import full_run
from wattention.analysis.energy import EnergyRatio
from wattention.analysis.power import PowerTimeSplit, Share
from wattention.analysis.summary import compare_records
from wattention.core.quantities import Absent, Quantity
from wattention.report.documents.run import run_document
from wattention.report.figures.power_time import sentence
from wattention.report.json.comparison import comparison_json
from wattention.report.renderers.csv import csv_text
from wattention.report.renderers.html.page import html_page
from wattention.report.units import format_value

ENERGY_FIGURES = {"energy-phases", "power-trace", "length-energy"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return energy_run(tmp_path_factory.mktemp("energy") / "r", carbon="DE-2023")


@pytest.fixture(scope="module")
def document(run):
    return run_document(run)


def figures(document):
    return {figure.key: figure for section in document.sections for figure in section.figures}


def section(document, key):
    return next(section for section in document.sections if section.anchor == key)


def cells(table, row):
    names = [column.key for column in table.columns]
    return dict(zip(names, next(r for r in table.rows if r[0].content == row), strict=True))


def test_figures_appear_with_their_data_and_only_then(document, tmp_path):
    assert set(figures(document)) >= ENERGY_FIGURES
    without = full_run(tmp_path / "r")  # energies of training alone, no sampler
    assert not ENERGY_FIGURES & set(figures(run_document(without)))
    assert not ENERGY_FIGURES & set(figures(run_document(full_run(tmp_path / "s", energy="absent"))))


def test_the_table_shows_gross_net_and_carbon(document):
    row = cells(document.sections[0].table, "baseline")
    gross, net, carbon = (
        row[k].content for k in ("energy_per_token_j", "net_energy_per_token_j", "carbon_per_token_kg")
    )
    assert gross.value == pytest.approx(0.25, rel=0.02)
    assert net.value == pytest.approx(gross.value * 190 / 250, rel=0.02)
    assert gross.low < 0.25 < gross.high
    assert carbon.value == pytest.approx(gross.value / 3.6e6 * 0.381)
    assert carbon.origin == "estimated"
    assert "measured energy x 381 g CO2e/kWh, Germany 2023" in carbon.source


def test_ratios_are_sharper_than_their_joules_because_the_gain_cancels(document):
    row = cells(section(document, "energy").table, "flash")
    gross, ratio = row["energy_per_token_j"].content, row["energy_ratio"].number
    assert (gross.high - gross.low) / gross.value > 0.05
    assert (ratio.high - ratio.low) / ratio.value < 0.02
    assert row["idle_w"].content.value == pytest.approx(60, rel=0.02)
    assert any("the sensor's gain cancels" in note for note in section(document, "energy").notes)


def test_the_split_is_said_in_a_sentence_a_mechanism(document):
    figure = figures(document)["power-time"]
    assert "flash saves 42 % energy: 53 % from time, -11 % from power." in figure.caption
    assert "sdpa saves" in figure.caption
    assert [view.label for view in figure.views] == [
        "what saves energy, gross", "what saves energy, net", "power and time",
    ]  # fmt: skip
    saved, time, power = figure.views[0].series
    assert saved.y == pytest.approx([a + b for a, b in zip(time.y, power.y, strict=True)])
    assert saved.low[0] < saved.y[0] < saved.high[0]


def split(value, time, power, *, tie=False):
    def share(x, half=0.01):
        return Share(value=x, low=x - half, high=x + half)

    def ratio(x, tie=False):
        return EnergyRatio(value=x, low=x * 0.99, high=x * 1.01, tie=tie)

    return PowerTimeSplit(
        energy=ratio(1 - value, tie), time=ratio(1.0), power=ratio(1.0),
        saved=share(value), from_time=share(time), from_power=share(power), estimated=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (split(0.18, 0.21, -0.03), "m saves 18 % energy: 21 % from time, -3 % from power."),
        (split(-0.12, -0.10, -0.02), "m takes 12 % more energy: 10 % from time, 2 % from power."),
        (split(0.5, 0.5, 0.002), "m saves 50 % energy: 50 % from time, 0.2 % from power (a tie)."),
        (
            split(0.005, 0.005, 0.0, tie=True),
            "m ties in energy (0.5 % saved, not proved): 0.5 % from time (a tie), 0 % from power (a tie).",
        ),
    ],
)
def test_sentences(found, words):
    assert sentence("m", found) == words


def test_phases_have_joules_per_product_and_what_is_missing_says_why(document):
    row = cells(figures(document)["energy-phases"].table, "flash")
    assert row["decode_j"].content.unit == "J/token"
    assert row["decode_j"].content.value == pytest.approx(0.3 * 0.505 * 0.4 * 290 / 32, rel=0.03)
    assert row["net_decode_j"].content.value < row["decode_j"].content.value
    assert row["build_j"].content.reason.endswith("so it is not repeated")
    assert "A generated token takes" in figures(document)["energy-phases"].caption


def test_the_trace_shades_the_phases_in_their_order(document):
    figure = figures(document)["power-trace"]
    assert [view.label for view in figure.views] == ["baseline", "flash", "sdpa"]
    bands = figure.views[0].bands
    assert [band.name for band in bands][:3] == ["build", "idle", "train"]
    assert bands[-1].name == "idle again"
    assert all(a.end <= b.begin for a, b in itertools.pairwise(bands))
    assert sum(len(series.x) for series in figure.views[0].series) <= 2000
    assert "flash draws the most power, 290 W, and baseline the least, 250 W; the idle machine draws 60.0 W" in (
        figure.caption
    )


def test_energy_against_length_has_intervals_and_crossings(run, document):
    figure = figures(document)["length-energy"]
    assert figure.caption.startswith("Less energy than baseline: at every length from 256 tokens on flash and sdpa")
    assert all(series.low for series in figure.views[0].series if not series.quiet)
    comparison = compare_records(run.spec, run.records)
    assert comparison.crossovers["flash"]["baseline", "energy"].kind == "always"
    point = comparison.lengths["baseline"][2048]
    assert point.net_energy_j.value == pytest.approx(point.energy_j.value * 190 / 250, rel=0.03)


def test_machines_get_it_too(run):
    comparison = compare_records(run.spec, run.records)
    line = json.loads(comparison_json(comparison, folder=run.folder))
    flash = next(m for m in line["mechanisms"] if m["mechanism"] == "flash")
    assert {"energy_per_token_j", "net_energy_per_token_j", "carbon_per_token_kg"} <= set(flash["quantities"])
    assert flash["lengths"]["512"]["net_energy"]["unit"] == "J"
    text = csv_text(run_document(run))
    assert ",net_energy_per_token_j," in text
    assert ",carbon_kg," in text


def test_without_a_factor_carbon_is_absent_with_the_reason(tmp_path):
    run = energy_run(tmp_path / "r")
    carbon = section(run_document(run), "carbon")
    assert carbon.notes == ("absent: no factor given: --carbon",)
    assert cells(carbon.table, "flash")["carbon_kg"].content == Absent("no factor given: --carbon")
    comparison = compare_records(run.spec, run.records)
    assert comparison.mechanisms[0].quantities["carbon_per_token_kg"] == Absent("no factor given: --carbon")


def test_an_estimate_stays_one_everywhere(tmp_path):
    document = run_document(full_run(tmp_path / "r", energy="estimated"))
    energy = section(document, "energy")
    readings = [cell.reading for row in energy.table.rows for cell in row[1:]]
    assert all(q.origin == "estimated" for q in readings if isinstance(q, Quantity))
    assert any(note.startswith("The energy is ESTIMATED, not measured") for note in energy.notes)


def test_the_least_energy_is_best_with_whatever_ties_with_it(run):
    comparison = compare_records(run.spec, run.records)
    best = [m.label for m in comparison.mechanisms if "energy_per_token_j" in m.best]
    assert best == ["flash", "sdpa"]  # 0.7 % apart, which the counter's steps hide


def test_grams_of_carbon():
    assert [format_value(kg, "kgCO2e") for kg in (1.5, 2e-3, 3e-9)] == ["1.50 kg CO2e", "2.00 g CO2e", "3.00 µg CO2e"]
    assert format_value(4e-10, "kgCO2e/token") == "400 ng CO2e/token"


def test_the_page_is_made_after_every_cell(run):
    for done in range(0, len(run.records) + 1, 5):
        assert html_page(run_document(replace(run, records=run.records[:done]))).startswith("<!doctype html>")
