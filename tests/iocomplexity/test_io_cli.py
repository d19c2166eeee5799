"""``wattention io`` as a user meets it: one command, one answer, one error."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from wattention.cli.io import app
from wattention.core.errors import UserError
from wattention.hardware.catalog import profile_text
from wattention.iocomplexity.problem.sizes import parse_size, parse_traffic, word_and_widths

SHAPE = ("--tokens", "1024", "--head-dim", "64")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False, env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    return result.output


def last_json(output: str) -> dict:
    return json.loads(output.strip().splitlines()[-1])


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    return str(caught.value)


def test_the_question_of_a_newcomer_takes_one_command() -> None:
    """My kernel moves 300 MB on an H100 with head dim 512: how far from the limit, and what would move fewer?"""
    text = run("claim", "--words", "300MB", "--tokens", "4096", "--head-dim", "512", "--device", "h100-sxm")
    answer, _, rest = text.partition("Limits")
    assert "Possible: " in answer
    assert "times less" in answer
    assert "Schedules that move fewer words" in rest
    assert "small_cache" in rest


def test_plan_prints_regime_schedules_bounds_and_a_winner() -> None:
    text = run(*SHAPE, "--fast-memory", "16KiB", "--pass", "both")
    assert "M = 8192 words (16.0 KiB)" in text
    for phrase in ("Forward: flash2_keys_kept moves the fewest words", "Backward: ", "Regime: large cache (M = 2 d^2)",
                   "scores formed once", "Does not apply: B_MLA", "Known shape, without constants"):  # fmt: skip
        assert phrase in text


def test_plan_json_has_the_promised_form() -> None:
    found = last_json(run(*SHAPE, "--fast-memory", "8192w", "--pass", "both", "--json"))
    assert set(found) == {"forward", "backward"}
    for one in found.values():
        assert set(one["bound"]) == {"name", "words", "class"}
        assert one["best"] == one["schedules"][0]["name"]
        for schedule in one["schedules"]:
            assert set(schedule) >= {"name", "loads", "stores", "words", "scratch_words", "flop", "ratio"}
            assert schedule["words"] == schedule["loads"] + schedule["stores"]
        words = [schedule["words"] for schedule in one["schedules"]]
        assert words == sorted(words)
    assert found["forward"]["best"] == "flash2_keys_kept"


@pytest.mark.parametrize("mask", ["dense", "causal", "window:16"])
def test_verify_executes_the_winner(mask: str) -> None:
    output = run("--tokens", "96", "--head-dim", "16", "--fast-memory", "400w", "--mask", mask, "--pass", "both",
                 "--verify", "--json")  # fmt: skip
    for one in last_json(output).values():
        assert one["verification"]["counts_agree"]
        assert one["verification"]["worst_error"] < 1e-10
        assert one["verification"]["tokens"] == 96
    assert "counts equal to the prediction" in " ".join(output.split())


def test_verify_of_a_large_problem_states_the_smaller_one() -> None:
    output = run("--tokens", "65536", "--head-dim", "64", "--fast-memory", "64KiB", "--verify")
    assert "executed on 2048 tokens, head dim 64, dense mask" in output


def test_a_mask_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mask.npy"
    np.save(path, np.tril(np.ones((8, 8), dtype=bool)))
    found = last_json(run("--tokens", "64", "--head-dim", "8", "--fast-memory", "300w", "--mask", str(path), "--json"))
    assert found["forward"]["schedules"]
    np.save(path, np.ones((9, 8), dtype=bool))
    message = refused("--tokens", "64", "--head-dim", "8", "--fast-memory", "300w", "--mask", str(path))
    assert "the mask does not fit the problem" in message
    assert "64 x 64" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SHAPE, "--fast-memory", "1w"), "fast memory is too small for every forward schedule"),
        ((*SHAPE, "--fast-memory", "0w"), "a size below one word"),
        ((*SHAPE, "--fast-memory", "-5"), "not a size"),
        ((*SHAPE,), "the size of fast memory is missing"),
        (("--fast-memory", "9w"), "--tokens and --head-dim missing"),
        (("--tokens", "0", "--head-dim", "64", "--fast-memory", "9KiB"), "wanted: at least 1"),
        (("--tokens", "8", "--head-dim", "-4", "--fast-memory", "9KiB"), "wanted: at least 1"),
        ((*SHAPE, "--value-dim", "0", "--fast-memory", "9KiB"), "value dim"),
        ((*SHAPE, "--value-dim", "128", "--values-in-keys", "--fast-memory", "9KiB"), "cannot be wider"),
        ((*SHAPE, "--heads", "6", "--kv-heads", "4", "--fast-memory", "9KiB"), "do not divide the query heads"),
        ((*SHAPE, "--fast-memory", "9KiB", "--mask", "windw:4"), "unknown mask"),
        ((*SHAPE, "--fast-memory", "9KiB", "--pass", "sideways"), "unknown pass"),
        ((*SHAPE, "--fast-memory", "9KiB", "--dtype", "float15"), "did you mean float16"),
        ((*SHAPE, "--fast-memory", "9KiB", "--form", "quadratic"), "unknown form of attention"),
        ((*SHAPE, "--device", "h100-smx"), "did you mean h100-sxm"),
        ((*SHAPE, "--device", "h100-sxm", "--level", "L9"), "unknown memory level"),
        ((*SHAPE, "--device", "t4", "--fast-memory", "9KiB"), "fast memory is given twice"),
        ((*SHAPE, "--levels"), "--levels needs a device"),
        (("claim", "--words", "0", *SHAPE, "--device", "t4"), "claimed traffic"),
        (("claim", "--words", "1e9", *SHAPE, "--device", "t4", "--pass", "both"), "a claim is about one pass"),
        (("curve", *SHAPE, "--low", "9KiB", "--high", "8KiB"), "range of the curve"),
        (("devices", "--share", "2"), "share of fast memory"),
        ((*SHAPE, "--values-in-keys", "--fast-memory", "9KiB", "--pass", "backward"), "no backward schedule serves"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(*arguments)


def test_devices_lists_every_level_with_its_source() -> None:
    found = last_json(run("devices", "--json"))["levels"]
    h100 = next(one for one in found if (one["device"], one["level"]) == ("h100-sxm", "shared"))
    assert h100["fast_words"] == 116224
    assert (h100["forward_head_dim"], h100["backward_stored_gradient_head_dim"]) == (340, 215)
    assert all(one["source"] for one in found)
    assert "awaits its data sheet" not in run("devices", "--device", "cpu-server")


def test_a_size_from_memory_is_marked(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(profile_text("t4").replace('source = "', 'source = "recalled, not checked; '))
    assert "awaits its data sheet" in " ".join(run("devices", "--device", str(mine)).split())  # lines wrap anywhere


def test_levels_of_one_device() -> None:
    output = run(*SHAPE, "--device", "h100-sxm", "--levels", "--json")
    found = last_json(output)["forward"]
    assert [one["level"] for one in found] == ["registers", "shared", "L2"]
    assert "shared of a thread block" in output


def test_curve_draws_text_svg_and_html(tmp_path: Path) -> None:
    svg, html = tmp_path / "curve.svg", tmp_path / "curve.html"
    output = run("curve", *SHAPE, "--points", "13", "--out", str(svg), "--json")
    found = last_json(output)["forward"]
    assert len(found["fast_words"]) == len(found["best"]) == 13
    assert found["crossings"][0]["after"] == found["best"][-1] or len(found["crossings"]) > 1
    assert "fast memory M" in output
    assert "overtakes" in output
    text = svg.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert text.count("<polyline") >= len(found["schedules"])
    assert "bound: once" in text
    run("curve", *SHAPE, "--points", "5", "--out", str(html), "--pass", "both")
    page = (tmp_path / "curve-backward.html").read_text()
    assert "plotly" in page
    assert 'src="http' not in page
    assert "format of a figure" in refused("curve", *SHAPE, "--points", "5", "--out", str(tmp_path / "curve.jpg"))


def test_png_is_written_or_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wattention.report.standalone.curve as figure

    def no_kaleido(name: str) -> object:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(figure, "import_module", no_kaleido)
    message = refused("curve", *SHAPE, "--points", "5", "--out", str(tmp_path / "curve.png"))
    assert "cannot write a PNG here" in message
    assert "write .svg or .html instead" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [("192KiB", 98304), ("8192w", 8192), ("100KB", 50000), ("232448B", 116224), ("1.5MiB", 786432), ("2gib", 2**30)],
)
def test_sizes(text: str, words: int) -> None:
    assert parse_size(text, 2) == words


def test_traffic_and_widths() -> None:
    assert parse_traffic("2.1e9", 2) == 2.1e9
    assert parse_traffic("4.4GB", 2) == 2.2e9
    word, widths = word_and_widths("bfloat16", "float32", None)
    assert (word, widths.inputs, widths.accumulators, widths.scratch) == (2, 1, 2, 1)
