import io
import json
import re

import pytest

from fakes.study import FakeLauncher, Silent
from wattention.analysis.summary import compare_records
from wattention.core.quantities import Absent, Quantity
from wattention.core.records import CellKey, Phase
from wattention.report.documents.comparison import comparison_document
from wattention.report.json.comparison import comparison_json
from wattention.report.renderers.terminal import print_document
from wattention.study.run import run_comparison
from wattention.study.store import RunFolder

GATE = CellKey(kind="gate", mechanism="flash", block=0)


def run(folder, spec, fail=None):
    return run_comparison(RunFolder(folder), spec, FakeLauncher(fail), Silent(), resume=False)


def printed(run, width=200):
    out = io.StringIO()
    comparison = compare_records(run.spec, run.records)
    print_document(comparison_document(comparison, name="r", damage=run.damage), file=out, width=width)
    return out.getvalue()


def test_the_table_states_ratios_best_and_the_answer(tmp_path, spec):
    text = printed(run(tmp_path, spec))
    assert "Fastest: flash" in text
    line = next(line for line in text.splitlines() if line.startswith("flash "))
    assert "0.50 [0.50, 0.50]" in line
    assert "*" in line


def test_ties_are_marked_and_named_together(tmp_path, spec):
    again = spec.replace(mechanisms=[{"label": name, "source": "sdpa"} for name in ("baseline", "a", "b")])
    text = printed(run(tmp_path, again))
    assert "Fastest: a = b (tie)" in text


def test_a_refused_mechanism_names_the_clause_and_shows_no_number(tmp_path, spec):
    text = printed(run(tmp_path, spec, {GATE: ("gate_failed", "failed strict_causality")}))
    line = next(line for line in text.splitlines() if line.startswith("flash"))
    assert re.fullmatch(r"flash\s+gate failed\s*", line)
    assert text.count("strict_causality") == 1


def test_a_narrow_terminal_gets_the_same_columns_in_several_tables(tmp_path, spec):
    finished = run(tmp_path, spec)
    wide, narrow = printed(finished, 300), printed(finished, 60)
    assert max(map(len, narrow.splitlines())) <= 60
    for heading in ("tokens/s", "ratio", "bits/byte"):
        assert heading in wide
        assert heading in narrow
    assert narrow.count("baseline  ") > wide.count("baseline  ")


def test_a_pipe_gets_plain_text(tmp_path, spec):
    out = io.StringIO()
    finished = run(tmp_path, spec)
    print_document(comparison_document(compare_records(finished.spec, finished.records), name="r"), file=out)
    assert "\x1b" not in out.getvalue()


def test_damaged_lines_are_named(tmp_path, spec):
    from wattention.study.store import read_run

    run(tmp_path, spec)
    with (tmp_path / "records.jsonl").open("a") as file:
        file.write("{broken\n")
    assert "line 11 is unreadable" in printed(read_run(tmp_path))


def test_names_with_markup_are_printed_as_they_are(tmp_path, spec):
    odd = spec.replace(
        mechanisms=[{"label": "[red]x[/red]", "source": "sdpa"}, {"label": "baseline", "source": "sdpa"}]
    )
    assert "[red]x[/red]" in printed(run(tmp_path, odd))


def test_json_is_one_line_with_the_origin_of_every_number(tmp_path, spec):
    finished = run(tmp_path, spec, {GATE: ("gate_failed", "failed tokens_mix")})
    text = comparison_json(compare_records(finished.spec, finished.records), folder=tmp_path)
    assert "\n" not in text
    data = json.loads(text)
    assert data["schema"] == 1
    assert [m["status"] for m in data["mechanisms"]] == ["ok", "gate_failed"]
    for mechanism in data["mechanisms"]:
        for reading in mechanism["quantities"].values():
            assert "absent" in reading or {"value", "unit", "origin", "source"} <= reading.keys()


def test_what_was_not_measured_is_absent_with_a_reason(tmp_path, spec):
    finished = run(tmp_path, spec)
    (baseline, _) = compare_records(finished.spec, finished.records).mechanisms
    assert baseline.quantities["energy_per_token_j"] == Absent("the energy phase recorded no energy_j")
    assert isinstance(baseline.quantities["tokens_per_s"], Quantity)


def test_half_a_run_can_be_read(tmp_path, spec):
    stop = CellKey(kind="train", mechanism="baseline", block=0)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, spec, {stop: KeyboardInterrupt()})
    from wattention.study.store import read_run

    assert "not run" in printed(read_run(tmp_path))


def test_an_estimate_shows_its_range_and_its_mark(tmp_path, spec):
    from dataclasses import replace

    class Estimating(FakeLauncher):
        def run(self, cell, **options):
            record = super().run(cell, **options)
            if cell.key.kind != "train":
                return record
            joules = Quantity(value=50.0, unit="J", origin="estimated", source="a model", low=20.0, high=100.0)
            energy = Phase(readings={"energy_j": joules, "tokens": record.phases["train"].readings["tokens"]})
            return replace(record, phases={**record.phases, "energy": energy})

    finished = run_comparison(RunFolder(tmp_path), spec, Estimating(), Silent(), resume=False)
    energy = compare_records(finished.spec, finished.records).mechanisms[0].quantities["energy_per_token_j"]
    assert (energy.origin, energy.low, energy.high) == ("estimated", 0.02, 0.1)
    text = printed(finished)
    assert "~50.0 mJ" in text
    assert "energy is ESTIMATED, not measured: a model." in text


def test_time_and_memory_have_crossovers_of_their_own(tmp_path, spec):
    finished = run(tmp_path, spec)
    found = compare_records(finished.spec, finished.records).crossovers["flash"]
    assert found["baseline", "time"].ratio_at_longest == pytest.approx(0.5)
    assert found["baseline", "memory"].kind == "always"
    slower = compare_records(finished.spec, finished.records).crossovers["baseline"]
    assert slower["flash", "time"].kind == "never"
