"""``wattention report`` as a user types it: formats, files, and nothing overwritten by accident."""

import json

import pytest
from typer.testing import CliRunner

from fakes.report_run import full_run
from wattention.cli.app import app
from wattention.core.errors import UserError


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    full_run(tmp_path / "r")
    return tmp_path / "r"


def wattention(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=True)


def test_html_goes_into_the_run_and_is_not_overwritten_without_force(run):
    assert wattention("report", "r", "--format", "html").stdout == "written: r/report.html\n"
    before = (run / "report.html").read_bytes()
    (run / "report.html").write_bytes(b"mine")
    again = wattention("report", "r", "--format", "html")
    assert isinstance(again.exception, UserError)
    assert "--force" in str(again.exception)
    assert (run / "report.html").read_bytes() == b"mine"
    assert wattention("report", "r", "--format", "html", "--force").exit_code == 0
    assert (run / "report.html").read_bytes() == before
    assert "page:    r/report.html" in wattention("report", "r").stdout


@pytest.mark.parametrize(
    ("name", "begins"), [("x.csv", "document,"), ("x.md", "## "), ("x.tex", "% needs"), ("x.json", "{"), ("x.txt", "w")]
)
def test_the_suffix_chooses_the_format(run, tmp_path, name, begins):
    assert wattention("report", "r", "-o", name).exit_code == 0
    assert (tmp_path / name).read_text().startswith(begins)


def test_text_formats_go_to_stdout(run):
    assert wattention("report", "r", "--format", "csv").stdout.startswith("document,section,row")
    last = wattention("report", "r", "--json").stdout.splitlines()[-1]
    assert json.loads(last)["run"] == "r"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "lateks"), "did you mean latex"),
        (("-o", "x.zip"), "names no format"),
        (("--format", "parquet"), "--out"),
        (("-o", "missing/x.csv"), "cannot write the report"),
    ],
)
def test_errors_say_what_to_do(run, words, said):
    result = wattention("report", "r", *words)
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)


def test_pairs_are_shown_when_asked_for(run):
    assert "Which pairs are decided" not in wattention("report", "r").stdout
    text = wattention("report", "r", "--pairs").stdout
    assert "Which pairs are decided" in text
    assert "flash / baseline" in text
    data = json.loads(wattention("report", "r", "--json").stdout.splitlines()[-1])
    pair = next(p for p in data["pairs"] if p["pair"] == ["flash", "baseline"] and p["measure"] == "step_s")
    assert (pair["verdict"], pair["blocks"], pair["judged_by"]) == ("less", 2, "one look")
    assert pair["bootstrap"] == {"absent": "2 blocks, and a bootstrap takes 8"}
    assert 'id="pairs"' in run_page(run)


def run_page(run):
    wattention("report", "r", "--format", "html", "--force")
    return (run / "report.html").read_text()


def test_several_runs_are_set_side_by_side(run, tmp_path):
    full_run(tmp_path / "s", hostname="elsewhere")
    text = wattention("report", "r", "s").stdout
    assert "Runs side by side" in text
    assert "ratios compared" in " ".join(text.split())
    assert wattention("report", "r", "s", "-o", "both.html").exit_code == 0
    table = wattention("report", "r", "s", "--format", "csv").stdout
    assert "wattention comparison: r,mechanisms,flash,step_s," in table
    assert "wattention comparison: s,mechanisms,flash,step_s," in table
    assert "wattention comparison: r and s,runs-side-by-side,flash,r_step_s," in table


def test_damaged_half_written_and_newer_lines_are_named_and_the_rest_is_used(run):
    with (run / "records.jsonl").open("a") as file:
        file.write('{"schema": 999}\n{"schema": 1, "kind": "tr')
    page = wattention("report", "r", "--format", "terminal").stdout
    count = len((run / "records.jsonl").read_text().splitlines())
    words = " ".join(page.split())
    assert f"line {count - 1} is unreadable and left out: the record was written by a newer wattention" in words
    assert f"line {count} is unreadable and left out: not complete JSON" in words
    assert "Fastest: flash" in page


def test_watching_a_finished_run_says_so(run):
    assert "finished; see: wattention report r" in wattention("watch", "r").stdout


def test_a_carbon_factor_can_be_given_when_the_report_is_made(run):
    assert "no factor given: --carbon" in wattention("report", "r", "--format", "csv").stdout
    given = wattention("report", "r", "--format", "csv", "--carbon", "FR-2023").stdout
    assert "56 g CO2e/kWh, France 2023" in given
    assert "no factor given" not in given
    wrong = wattention("report", "r", "--carbon", "Frence")
    assert isinstance(wrong.exception, UserError)
    assert "did you mean France" in str(wrong.exception)
