"""``wattention advise``: the words a user reads, errors, JSON; on the smallest model."""

import json

import pytest
from typer.testing import CliRunner

from wattention.cli.app import app
from wattention.core.amounts import parse_energy
from wattention.core.errors import UserError

SMALL = ("--model", "tiny", "--length", "128", "--lengths", "none", "-m", "flash", "-m", "gqa", "-m", "linear")


def run(*words):
    result = CliRunner().invoke(app, ["advise", *words], env={"COLUMNS": "140", "NO_COLOR": "1"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_a_kernel_that_a_board_does_not_have_is_set_aside():
    text = " ".join(run(*SMALL, "--hardware", "t4").split())
    assert "flash: cannot run there: the CUDA flash kernel needs compute capability 8.0 or newer, not 7.5." in text


def test_the_answer_its_reasons_and_the_small_cache_regime():
    text = run(*SMALL, "--hardware", "rtx_4090", "--json")
    head = text.splitlines()
    assert head[0].startswith("Advice to train GPT-2, 2 layers of width 128, 128 tokens x batch 1, bfloat16, on NVIDIA")
    assert head[1].startswith("Use ")
    assert "approximate" in text
    assert "exact, other weights" in text
    flat = " ".join(text.split())
    assert "This model's head dim 32 is below it everywhere" in flat
    assert "Absorbed MLA's 576 is in the small-cache regime of registers and shared" in flat
    found = json.loads(head[-1])
    assert {choice["mechanism"] for choice in found["choices"]} == {"flash", "gqa", "linear"}
    assert found["choices"][0]["ratio"] == 1.0
    assert found["small_cache"]["shared"]["forward"] == 225
    assert all(choice["time"]["origin"] == "predicted" for choice in found["choices"])


def test_wishes_set_mechanisms_aside():
    text = run(*SMALL, "--hardware", "rtx-4090", "--precision", "float32", "--exact-only", "--json")
    aside = json.loads(text.splitlines()[-1])["set_aside"]
    assert aside["linear"] == "approximate, and exact attention was asked for"
    assert "float16 and bfloat16, not for float32" in aside["flash"]


def test_memory_and_energy_are_read_with_their_units():
    text = run(*SMALL, "--hardware", "rtx-4090", "--memory", "1MiB")
    assert "Nothing can be used. flash: memory: needs" in " ".join(text.split())
    text = run(*SMALL, "--hardware", "h200", "--energy-budget", "5kWh", "--tokens", "1e6", "--json")
    assert {choice["budget"] for choice in json.loads(text.splitlines()[-1])["choices"]} == {"kept"}
    assert parse_energy("5kWh") == 18e6
    assert parse_energy("200 Wh") == 720e3
    assert parse_energy("3MJ") == 3e6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--hardware", "rtx-4080"), "did you mean rtx-4090"),
        (("--hardware", "rtx-4090", "--workload", "training"), "did you mean train"),
        (("--hardware", "rtx-4090", "--by", "speed"), "unknown objective"),
        (("--hardware", "rtx-4090", "--energy-budget", "5kWh"), "an energy budget is for a number of tokens"),
        (("--hardware", "rtx-4090", "--energy-budget", "5 lemons", "--tokens", "1"), "not an energy"),
        (("--hardware", "rtx-4090", "--lengths", "0"), "values of --lengths"),
        (("--hardware", "rtx-4090", "--memory", "much"), "not a size"),
        (("--hardware", "rtx-4090", "--model", "gpt3"), "unknown preset"),
    ],
)
def test_errors_name_what_was_wanted(words, message):
    with pytest.raises(UserError, match=message):
        run("--lengths", "none", *words)
