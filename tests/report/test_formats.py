"""The same document as LaTeX, CSV, Parquet, Markdown and text, for one run and for several."""

import csv
import io
import json
import sys

import pytest

from fakes.report_run import full_run
from wattention.core.errors import UserError
from wattention.report.documents.run import run_document
from wattention.report.documents.several_runs import several_document
from wattention.report.renderers.csv import csv_text
from wattention.report.renderers.latex import escape, latex_text
from wattention.report.renderers.markdown import markdown_text
from wattention.report.renderers.parquet import parquet_bytes
from wattention.report.renderers.terminal import print_document


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return run_document(full_run(tmp_path_factory.mktemp("run") / "r", ("baseline", "flash", "a_b & <c>")))


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_one_row_a_quantity_in_base_units_and_full_precision(document):
    rows = read_csv(csv_text(document))
    step = next(row for row in rows if (row["row"], row["quantity"]) == ("flash", "step_s"))
    assert float(step["value"]) == pytest.approx(0.1 * 1.01**0.5, rel=1e-3)
    assert step["unit"] == "s"
    assert step["origin"] == "measured"
    assert step["source"] == "clock"
    assert step["best"] == "True"
    assert float(step["low"]) <= float(step["value"]) <= float(step["high"])
    assert all(row["value"] == "" for row in rows if row["absent"])
    assert {row["section"] for row in rows} >= {"mechanisms", "figure-block-differences"}
    keys = [(row["section"], row["row"], row["quantity"]) for row in rows]
    assert len(keys) == len(set(keys))


def test_a_name_that_looks_like_a_formula_stays_a_word(tmp_path):
    run = full_run(tmp_path / "r", ("baseline", "=HYPERLINK(1)"))
    names = {row["row"] for row in read_csv(csv_text(run_document(run)))}
    assert "'=HYPERLINK(1)" in names


def test_latex_is_booktabs_and_escaped(document):
    text = latex_text(document)
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == text.count(r"\begin{table}") > 0
    assert r"a\_b \& \textless{}c\textgreater{} &" in text
    assert escape("50%_{x}^~\\") == r"50\%\_\{x\}\textasciicircum{}\textasciitilde{}\textbackslash{}"
    for line in text.splitlines():
        if line.endswith(r"\\"):
            assert line.replace(r"\&", "").count("&") <= 7


def test_parquet_without_pyarrow_says_what_to_do(document, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        parquet_bytes(document)


def test_parquet_holds_the_numbers_of_the_csv(document):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(io.BytesIO(parquet_bytes(document))).to_pylist()
    expected = list(csv.DictReader(io.StringIO(csv_text(document))))
    assert len(rows) == len(expected) > 0
    for row, same in zip(rows, expected, strict=True):
        assert (row["unit"] or "") == same["unit"]
        assert (None if row["value"] is None else str(row["value"])) == (same["value"] or None)


def test_text_and_markdown_say_what_the_figures_find(document):
    out = io.StringIO()
    print_document(document, file=out, width=200)
    (figures,) = (section.figures for section in document.sections if section.figures)
    for figure in figures:
        assert figure.caption[:60] in out.getvalue().replace("\n", " ")
        assert f"**{figure.title}.**" in markdown_text(document)
    short = io.StringIO()
    print_document(document, file=short, width=200, details=False)
    assert "Differences within blocks" not in short.getvalue()


def test_the_method_is_written_from_the_records(document):
    method = next(section for section in document.sections if section.title == "Method")
    words = {row[0].content: row[1].content for row in method.table.rows}
    assert words["to repeat it"] == "wattention compare --blocks 2"
    assert "Fake CPU" in words["machine lab"]
    assert "torch 2.9.9" in words["versions"]
    assert words["commit"] == "0123456789ab (changed)"
    assert words["flagged windows"] == "company in train: 3"
    assert set(words["order in block 1"].split(", ")) == {"baseline", "flash", "a_b & <c>"}
    assert words["left out"] == "nothing"


def test_runs_of_different_hosts_are_compared_by_ratios_only(tmp_path):
    one = full_run(tmp_path / "one", ("baseline", "flash"))
    two = full_run(tmp_path / "two", ("baseline", "flash", "sdpa"), hostname="elsewhere")
    document = several_document([one, two])
    across = document.sections[0]
    rows = {row[0].content: row[1:] for row in across.table.rows}
    assert all(cell.reading.unit == "ratio" for cell in (*rows["baseline"], *rows["flash"]))
    assert rows["flash"][0].reading.value == pytest.approx(0.5)
    assert rows["sdpa"][0].reading.reason == "not part of this run"
    assert "one ran on lab, two ran on elsewhere" in " ".join(across.notes)
    assert "never mixed" in " ".join(across.notes)
    assert "one: Mechanisms" in [section.title for section in document.sections]
    same = several_document([one, full_run(tmp_path / "three", ("baseline", "flash"))])
    assert "never mixed" not in " ".join(same.sections[0].notes)


def test_a_folder_with_a_strange_name_harms_nothing(tmp_path):
    from wattention.report.renderers.html.page import html_page

    strange = 'x" onload="harm()'
    runs = [full_run(tmp_path / strange, ("baseline", "flash")), full_run(tmp_path / "y", ("baseline", "flash"))]
    text = html_page(several_document(runs))
    assert strange not in text
    assert 'id="run1-mechanisms"' in text
    assert 'id="figure-run2-loss-curves"' in text


def test_json_of_a_run_is_still_one_line(tmp_path):
    from wattention.analysis.summary import compare_records
    from wattention.report.json.comparison import comparison_json

    run = full_run(tmp_path / "r")
    assert json.loads(comparison_json(compare_records(run.spec, run.records), folder=run.folder))["schema"] == 1
