"""``wattention meter selftest`` as a user types it."""

import json

import pytest
from typer.testing import CliRunner

from wattention.cli.app import app
from wattention.core.errors import UserError


def test_the_selftest_says_what_this_machine_is_worth_and_exits_with_0():
    result = CliRunner().invoke(app, ["meter", "selftest", "--seconds", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert "What the meters for cpu are worth" in result.stdout
    data = json.loads(result.stdout.splitlines()[-1])
    assert data["schema"] == 1
    names = {check["name"] for check in data["checks"]}
    assert {"clock", "linearity cpu_s", "memory", "estimate"} <= names
    for check in data["checks"]:
        assert check["finding"]
        assert check["verdict"] in ("sound", "doubtful", "faulty", "not measurable")


@pytest.mark.parametrize(
    ("options", "words"), [(["--seconds", "-1"], "a positive number"), (["--device", "tpu"], "unknown device")]
)
def test_what_cannot_be_tested_is_refused(options, words):
    result = CliRunner().invoke(app, ["meter", "selftest", *options])
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
