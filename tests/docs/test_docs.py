"""Documentation cannot drift: every block of Python or of commands in README and docs/ runs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?P<mark><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```", re.M | re.S)
KNOWN = {"python", "console", "text", "toml", "json", "bibtex", "math"}


def consoles():
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            if match["language"] == "console" and not match["mark"]:
                yield pytest.param(match["text"], id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_of_a_known_kind_and_links_lead_somewhere(page):
    text = page.read_text()
    assert {match["language"] for match in BLOCK.finditer(text)} <= KNOWN
    assert text.count("```") == 2 * len(list(BLOCK.finditer(text))), "every fence belongs to a block that was found"
    prose = BLOCK.sub("", text)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), target


def programs():
    """The Python blocks of a page, one after the other, are one program."""
    for page in PAGES:
        parts = [m["text"] for m in BLOCK.finditer(page.read_text()) if m["language"] == "python" and not m["mark"]]
        if parts:
            yield pytest.param("\n".join(parts), id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("program", list(programs()))
def test_python_blocks_run(program, tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, check=True, timeout=300)


@pytest.mark.parametrize("text", list(consoles()))
def test_command_blocks_run(text, tmp_path):
    commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    assert commands, "a console block shows at least one command after '$ '"
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "wattention", f"mark a block that cannot run here with <!-- not run: reason -->: {command}"
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode in (0, 1), done.stderr


def test_the_page_of_commands_is_generated():
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], check=True)


def test_the_readme_shows_what_the_stored_run_prints():
    shown = next(m["text"] for m in BLOCK.finditer((ROOT / "README.md").read_text()) if m["language"] == "text")
    command = [sys.executable, "-m", "wattention", "report", str(ROOT / "docs" / "example-run")]
    environment = {**os.environ, "COLUMNS": "132", "NO_COLOR": "1"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    missing = set(map(str.rstrip, shown.splitlines())) - set(map(str.rstrip, printed.splitlines()))
    assert not missing


def test_the_study_page_shows_what_the_stored_run_says(tmp_path):
    shown = next(m["text"] for m in BLOCK.finditer((ROOT / "docs" / "study.md").read_text()) if m["language"] == "text")
    shutil.copytree(ROOT / "docs" / "study-run", tmp_path / "study-run")
    command = [sys.executable, "-m", "wattention", "study", "--of", "study-run"]
    environment = {**os.environ, "COLUMNS": "132", "NO_COLOR": "1"}
    printed = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    missing = set(map(str.rstrip, shown.splitlines())) - set(map(str.rstrip, printed.splitlines()))
    assert not missing


@pytest.mark.parametrize(
    ("begins", "command", "pages"),
    [
        ("Advice to train", "advise --model gpt2-medium --length 8192 --hardware rtx_4090",
         ("README.md", "docs/advising.md")),
        ("4096 tokens, head dim 512", "io claim --words 300MB --tokens 4096 --head-dim 512 --device h100-sxm",
         ("README.md",)),
    ],
)  # fmt: skip
def test_pages_show_what_the_command_above_answers(begins, command, pages):
    environment = {**os.environ, "COLUMNS": "132", "NO_COLOR": "1"}
    asked = [sys.executable, "-m", "wattention", *command.split()]
    printed = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout
    for page in pages:
        text = (ROOT / page).read_text()
        assert f"$ wattention {command}\n" in text
        shown = next(m["text"] for m in BLOCK.finditer(text) if m["text"].startswith(begins))
        missing = set(map(str.rstrip, shown.splitlines())) - set(map(str.rstrip, printed.splitlines()))
        assert missing <= {"..."}
