"""``wattention check``: exit codes, JSON, files of the user's own, and errors in one line."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from wattention.cli.check import check
from wattention.core.errors import UserError

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(check)

LEAKY = """
import dataclasses
import torch
from wattention.mechanisms.baseline import MECHANISM as BASELINE, BaselineAttention


class Leaky(BaselineAttention):
    def attend(self, q, k, v):
        return super().attend(q, k, v + 0.1 * v.mean(2, keepdim=True))


MECHANISM = dataclasses.replace(BASELINE, name="leaky", build=lambda shape, config, dropout: Leaky(shape, dropout))
"""


def test_conforming_mechanisms_end_with_code_0() -> None:
    result = CliRunner().invoke(app, ["flash", "sdpa"])
    assert result.exit_code == 0, result.output
    assert "2 of 2 mechanisms conform" in result.output


def test_failing_file_ends_with_code_1_and_names_the_clause(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(LEAKY)
    result = CliRunner().invoke(app, [str(mine)])
    assert result.exit_code == 1
    assert "leaky (reference-forward" in result.output
    assert "causality failed: the future leaks" in result.output


def test_json_is_one_object_with_every_clause() -> None:
    result = CliRunner().invoke(app, ["baseline", "--json", "--dtype", "bfloat16"])
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (answer["schema"], answer["passed"]) == (1, True)
    (report,) = answer["mechanisms"]
    assert (report["mechanism"], report["dtype"]) == ("baseline", "bfloat16")
    assert {clause["status"] for clause in report["clauses"]} == {"passed", "skipped"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["flesh"], "unknown mechanism\n  got: flesh"),
        (["no_such_file.py"], "cannot read the mechanism file"),
        (["flash", "--dtype", "float65"], "got: float65\n  wanted: float32, bfloat16, float16"),
        (["flash", "--device", "abacus"], "cannot use the device\n  got: abacus"),
    ],
)
def test_bad_input_is_a_user_error_before_anything_runs(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert not result.stdout
