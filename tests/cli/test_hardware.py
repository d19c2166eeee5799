"""``wattention hardware``: the list, one device with its sources, the file to copy, JSON."""

import json

import pytest
from typer.testing import CliRunner

from wattention.cli.app import app
from wattention.core.errors import UserError
from wattention.hardware.catalog import load_profile, profile_names


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["hardware", *words], env={"COLUMNS": "200", "NO_COLOR": "1"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_the_list_has_every_profile_and_marks_what_was_recalled(tmp_path):
    lines = run().splitlines()
    for name in profile_names():
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    mine = tmp_path / "mine.toml"
    mine.write_text(run("t4", "--toml").replace('source = "', 'source = "recalled, not checked; ', 2))
    assert f"2 of {len(load_profile('t4').numbers())} figures were written down from memory" in run(str(mine))


def test_one_device_prints_every_figure_and_every_source():
    text, profile = run("RTX_4090"), load_profile("rtx-4090")
    flat = " ".join(text.split())
    for place, number in profile.numbers():
        assert any(line.startswith(f"{place} ") for line in text.splitlines()), place
        assert " ".join(number.source.split()) in flat
    assert "1.01 TB/s" in text, "rates are decimal, as data sheets print them"


def test_a_device_without_energies_says_that_joules_cannot_be_predicted():
    assert "joules cannot be predicted" in run("m2-max")
    assert "joules cannot be predicted" not in run("h100-sxm")


def test_the_file_itself_is_a_profile_to_copy(tmp_path):
    copy = tmp_path / "mine.toml"
    copy.write_text(run("rtx-4090", "--toml"))
    assert load_profile(str(copy)) == load_profile("rtx-4090")
    with pytest.raises(UserError, match="--toml prints one profile"):
        run("--toml")


def test_the_last_line_is_json():
    found = json.loads(run("h200", "--json").splitlines()[-1])["devices"]
    assert [device["name"] for device in found] == ["h200"]
    assert found[0]["levels"][-1]["bandwidth"]["unit"] == "byte/s"


def test_an_unknown_device_answers_with_near_ones():
    with pytest.raises(UserError, match="did you mean rtx-4090"):
        run("rtx-4080")
