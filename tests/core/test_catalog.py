from dataclasses import dataclass

import pytest

from wattention.core.catalog import Catalog
from wattention.core.errors import UserError
from wattention.mechanisms.base import MECHANISMS


@dataclass(frozen=True)
class Thing:
    name: str


THINGS = Catalog(kind="thing", package="wattention.mechanisms", export="THING", record=Thing)


def test_names_are_file_names_without_the_files_that_are_no_plugins():
    names = MECHANISMS.names()
    assert "baseline" in names
    assert "base" not in names
    assert "reference" not in names


def test_a_users_file_is_treated_like_one_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text("import wattention\nTHING = wattention.thing\n")
    monkeypatch.setattr("wattention.thing", Thing("mine"), raising=False)
    assert THINGS.load(str(tmp_path / "mine.py")) == Thing("mine")


def test_two_files_of_one_name_do_not_collide(tmp_path, monkeypatch):
    loaded = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "mine.py"
        monkeypatch.setattr(f"wattention.thing_{folder}", Thing(folder), raising=False)
        path.write_text(f"import wattention\nTHING = wattention.thing_{folder}\n")
        loaded.append(THINGS.load(str(path)))
    assert loaded == [Thing("a"), Thing("b")]


def test_an_unknown_name_answers_with_near_matches():
    with pytest.raises(
        UserError, match=r"unknown mechanism\n  got: flahs\n  wanted: .*flash.*\n  do this: did you mean flash"
    ):
        MECHANISMS.load("flahs")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "a module without THING"),
        ("THING = 3", "got: int"),
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_file_that_is_no_plugin_says_why(tmp_path, text, words):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        THINGS.load(str(path))
    assert words in str(caught.value)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(UserError, match="cannot read the thing file"):
        THINGS.load(str(tmp_path / "none.py"))
