"""The commands predict and calibrate: tables, JSON, and errors that teach."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from wattention.cli.app import app
from wattention.core.errors import UserError

SMALL = ["predict", "--model", "tiny", "--length", "128", "-m", "flash", "-m", "few=gqa", "--set", "few.kv_heads=1"]


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_names_marks_and_what_energy_needs() -> None:
    out = run(*SMALL, "--hardware", "a100-80", "--batch", "2", "--tokens", "1e9")
    assert "times as long" in out
    assert "data-sheet rates" in out
    assert "L2 - main" in out
    assert "Training run" in out


def test_json_carries_origin_unit_and_reason() -> None:
    out = run(*SMALL, "--hardware", "a100-80", "--memory", "1MiB", "--json")
    points = json.loads(out.splitlines()[-1])["points"]
    assert [point["label"] for point in points] == ["flash", "few"]
    first = points[0]
    assert first["train"]["time"]["origin"] == "predicted"
    assert first["train"]["traffic"][-1]["bound"]["origin"] == "bound"
    assert first["train"]["carbon_per_token"].keys() == {"absent"}
    assert first["memory"]["fits"] is False
    assert first["memory"]["largest_batch"] == 0
    assert first["query"]["mechanism"] == "flash"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hardware", "a10"], "did you mean a10g"),
        (["--model", "gpt2-larg"], "did you mean gpt2-large"),
        (["--precision", "float8"], "unknown precision"),
        (["--length", "0"], "at least 1"),
        (["--carbon", "300"], "write its unit"),
        (["--carbon", "Germny"], "Germany"),
        (["--set", "model.heads=5"], "heads do not divide"),
        (["--set", "flash.window=5"], "setting of flash"),
    ],
)
def test_a_wrong_question_is_told_what_would_be_right(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run("predict", "--model", "tiny", "--length", "64", "-m", "flash", *words)


def test_calibrate_refuses_an_unknown_allocator_and_too_little_time() -> None:
    with pytest.raises(UserError, match="did you mean keep"):
        run("calibrate", "--malloc", "kep")
    with pytest.raises(UserError, match="too little time"):
        run("calibrate", "--seconds", "1")


def test_what_cannot_run_on_the_device_is_left_out_with_its_reason() -> None:
    shown = run("predict", "--model", "tiny", "--length", "64", "-m", "flash", "-m", "sdpa", "--hardware", "rtx-4090",
                "--precision", "float32", "--json")  # fmt: skip
    reason = "the CUDA flash kernel exists for float16 and bfloat16, not for float32"
    assert f"left out, for it cannot run there: flash ({reason})" in " ".join(shown.split())
    answer = json.loads(shown.splitlines()[-1])
    assert answer["refused"] == {"flash": reason}
    assert [point["label"] for point in answer["points"]] == ["sdpa"]


def test_nothing_that_can_run_is_an_error() -> None:
    with pytest.raises(UserError, match="no mechanism that was asked for can run on t4 in bfloat16"):
        run("predict", "--model", "tiny", "--length", "64", "-m", "flash", "--hardware", "t4")
