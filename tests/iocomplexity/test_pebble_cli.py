"""``wattention pebble`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wattention.cli.pebble import app
from wattention.core.errors import UserError
from wattention.iocomplexity.pebble.graph import to_json
from wattention.iocomplexity.pebble.graphs.family import parse

RUN = CliRunner()


def ask(*words: str) -> str:
    result = RUN.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_answer_names_the_optimum_and_its_proof() -> None:
    text = ask("--graph", "matmul:m=2,k=2,n=2", "--fast-memory", "4", "--rules", "no-recompute")
    assert "optimum: 17" in text
    assert "proved: no legal game costs less" in text


def test_json_has_the_promised_keys() -> None:
    answer = json.loads(ask("--graph", "matmul", "--fast-memory", "4", "--rules", "fma", "--json"))
    assert {"optimum", "proved", "lower_bound", "loads", "stores", "moves", "nodes", "states", "seconds"} <= set(answer)
    assert (answer["optimum"], answer["proved"], answer["loads"] + answer["stores"]) == (14, True, 14)


def test_without_time_the_answer_is_a_game_and_a_bound() -> None:
    text = ask("--graph", "attention:tokens=2,dim=2", "--fast-memory", "4", "--time-limit", "0")
    assert "best game found: 38" in text
    assert "the time limit came first" in text


def test_a_solution_is_accepted_by_verify_and_a_mutant_is_not(tmp_path: Path) -> None:
    graph, moves = tmp_path / "graph.json", tmp_path / "moves.json"
    graph.write_text(json.dumps(to_json(parse("attention:tokens=2,dim=1"))))
    moves.write_text(ask("--graph", str(graph), "--fast-memory", "5", "--json"))
    assert "legal: " in ask("verify", str(graph), str(moves), "--fast-memory", "5")
    answer = json.loads(moves.read_text())
    moves.write_text(json.dumps(answer["moves"][1:]))
    result = RUN.invoke(app, ["verify", str(graph), str(moves), "--fast-memory", "5", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["legal"] is False


def test_graph_and_moves_are_saved_for_verify(tmp_path: Path) -> None:
    graph, moves, page = (str(tmp_path / name) for name in ("graph.json", "moves.json", "game.html"))
    files = ("--save-graph", graph, "--save-moves", moves, "--html", page)
    assert f"game: {page}" in ask("--graph", "matmul", "--fast-memory", "3", "--rules", "fma", *files)
    assert "legal: " in ask("verify", graph, moves, "--fast-memory", "3", "--rules", "fma")
    assert "matmul 2x2x2, fma, M = 3" in Path(page).read_text()


def test_the_list_of_graphs_tells_the_options() -> None:
    assert "attention-backward" in ask("--list")


def test_the_bridge_prints_one_line_a_case() -> None:
    rows = json.loads(ask("bridge", "--masks", "causal", "--json"))
    assert all(row["proved"] and max(row["bounds"].values()) <= row["optimum"] for row in rows)
    assert {row["direction"] for row in rows} == {"forward", "backward"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--graph", "matmul"], "--fast-memory missing"),
        (["--graph", "matmul", "--fast-memory", "2"], "too small for node C00"),
        (["--graph", "matmul", "--fast-memory", "4", "--rules", "hongkung"], "did you mean hong-kung"),
        (["--graph", "nowhere.json", "--fast-memory", "4"], "cannot read the file"),
        (["--graph", "matmul", "--fast-memory", "4", "--html", "/nowhere/game.html"], "cannot write the file"),
        (["verify", "nowhere.json", "nowhere.json", "--fast-memory", "4"], "cannot read the file"),
    ],
)
def test_bad_input_is_one_clear_error(words: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        RUN.invoke(app, words, catch_exceptions=False)
