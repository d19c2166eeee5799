"""The page that plays a pebble game: what it says without a browser, and how it plays in one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from wattention.iocomplexity.pebble.exact import solve
from wattention.iocomplexity.pebble.graph import Graph, build
from wattention.iocomplexity.pebble.graphs.family import parse
from wattention.iocomplexity.pebble.rules import Move, named
from wattention.report.standalone.pebble_game import game_page, layout


def page_of(graph: Graph, rules: str, fast_words: int) -> tuple[str, tuple[Move, ...]]:
    solution = solve(graph, fast_words, named(rules))
    return game_page(graph, solution.moves, fast_words, title=graph.name, proved=solution.proved), solution.moves


def test_the_page_fetches_nothing() -> None:
    page, _ = page_of(parse("matmul"), "no-recompute", 4)
    assert not re.findall(r"(?:src|href)=[\"'](?!data:)", page)
    addresses = set(re.findall(r"https?://[^\"' ]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a namespace


def test_names_are_data_and_never_markup() -> None:
    evil = '</script><img src=x onerror="document.title=1">'
    graph = build(evil, {evil: [], "b": [[evil]]}, ["b"])
    page, _ = page_of(graph, "hong-kung", 2)
    assert evil not in page
    assert page.count("</script>") == 2


def test_no_two_nodes_are_drawn_over_each_other() -> None:
    for spec in ("attention:tokens=2,dim=2", "matmul:m=3,k=3,n=3", "fft:points=8"):
        places = layout(parse(spec))
        gaps = [max(abs(x - u), abs(y - v)) for k, (x, y) in enumerate(places) for u, v in places[:k]]
        assert min(gaps) > 38


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Any:
    def go(graph: Graph, rules: str, fast_words: int) -> tuple[Any, tuple[Move, ...]]:
        page, moves = page_of(graph, rules, fast_words)
        file = tmp_path / "game.html"
        file.write_text(page, encoding="utf-8")
        browser.get_log("browser")
        browser.get(file.as_uri())
        return browser, moves

    return go


def text(window: Any, element: str) -> str:
    return window.find_element("id", element).text


def press(window: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(window).send_keys(key).perform()


def marked(window: Any, colour: str) -> set[str]:
    return {node.get_attribute("data-node") for node in window.find_elements("css selector", f".node.{colour}")}


@pytest.mark.parametrize("rules", ["no-recompute", "sliding", "prbp", "fma"])
def test_a_browser_plays_the_game_to_its_end(opened: Any, rules: str) -> None:
    from selenium.webdriver.common.keys import Keys

    graph = parse("attention:tokens=2,dim=1", sum="word" if rules == "fma" else "chain")
    window, moves = opened(graph, rules, 4)
    assert marked(window, "blue") == {graph.nodes[v] for v in graph.inputs}
    assert marked(window, "red") == set()
    for number, move in enumerate(moves[:6], start=1):
        press(window, Keys.ARROW_RIGHT)
        assert text(window, "what").startswith(f"{number} / {len(moves)}: ")
        assert (move.node in marked(window, "red")) == (move.kind != "delete")
    press(window, Keys.END)
    loads, stores = (sum(move.kind == kind for move in moves) for kind in ("load", "store"))
    assert [text(window, name) for name in ("loads", "stores", "words")] == [
        str(loads),
        str(stores),
        str(loads + stores),
    ]
    assert marked(window, "blue") >= {graph.nodes[v] for v in graph.outputs}
    press(window, Keys.ARROW_LEFT, Keys.HOME)
    assert text(window, "words") == "0"
    assert [entry for entry in window.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_play_pauses_and_the_list_of_moves_jumps(opened: Any) -> None:
    from selenium.webdriver.support.ui import Select, WebDriverWait

    window, moves = opened(parse("matmul:m=1,k=1,n=2"), "hong-kung", 3)
    Select(window.find_element("id", "speed")).select_by_visible_text("30")
    window.find_element("id", "play").click()
    WebDriverWait(window, 10).until(lambda w: text(w, "what").startswith(f"{len(moves)} / "))
    WebDriverWait(window, 10).until(lambda w: text(w, "play") == "play")
    window.find_elements("css selector", "#moves li")[1].click()
    assert text(window, "what").startswith("2 / ")


def test_an_evil_name_is_only_a_label(opened: Any) -> None:
    evil = "</script><b onload=1>"
    window, _ = opened(build("names", {evil: [], "b": [[evil]]}, ["b"]), "hong-kung", 2)
    assert [node.get_attribute("data-node") for node in window.find_elements("css selector", ".node")] == [evil, "b"]
    assert window.find_elements("tag name", "img") == []
