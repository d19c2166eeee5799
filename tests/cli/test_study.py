"""``wattention study`` as a user types it: a study of their own from start to verdicts, previews, bad names."""

import json

import pytest
from test_cli import wattention

MINE = """
schema_version = 1
title = "Two fused operators"
citation = "nowhere"
code = "none"
setup = "made up for a test"
reference = "sdpa"

[[mechanisms]]
name = "sdpa"
published_as = "SDPA"

[[mechanisms]]
name = "gqa"
published_as = "GQA"
ran = "something else"

[[figures]]
measure = "flop"
title = "FLOPs"
published = "G"
source = "made up for a test"
values = { sdpa = 2, gqa = 1 }

[[claims]]
id = "fewer"
text = "Grouped queries need fewer FLOPs"
form = "less"
measure = "flop"
mechanisms = ["gqa", "sdpa"]

[[claims]]
id = "joules"
text = "Grouped queries need less energy"
form = "less"
measure = "energy"
mechanisms = ["gqa", "sdpa"]

[scales.small]
about = "seconds on one core"

[scales.small.run]
blocks = 2
threads = 1
model = { layers = 1, width = 32, heads = 4, context = 64 }
training = { steps = 4, batch = 1 }
data = { max_bytes = 200000, heldout_tokens = 256 }
measure = { lengths = [], decode_tokens = 4 }
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "mine.toml").write_text(MINE)
    result = wattention("study", "mine.toml", "--scale", "small", "--out", "run", "--json", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder, result


def test_a_study_of_ones_own_runs_and_is_judged(finished):
    folder, result = finished
    data = json.loads(result.stdout.splitlines()[-1])
    verdicts = {claim["id"]: claim["verdict"] for claim in data["claims"]}
    assert verdicts["fewer"] == "holds"
    assert data["claims"][0]["original_code"] == {"gqa": "something else"}
    assert data["rankings"][0]["mechanisms"][0]["rank"] == 1
    assert "Grouped queries need fewer FLOPs" in result.stdout
    page = (folder / "run" / "study.html").read_text()
    assert "Published figures and ours" in page
    assert "Specification" in page  # the run's own sections follow


def test_a_run_on_disk_is_judged_without_running(finished):
    folder, _ = finished
    before = (folder / "run" / "records.jsonl").read_bytes()
    result = wattention("study", "--of", "run", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert (folder / "run" / "records.jsonl").read_bytes() == before
    assert "Of 11 published claims" in result.stdout
    assert "the run has no" in " ".join(result.stdout.split())


def test_a_dry_run_shows_what_would_run(tmp_path):
    result = wattention("study", "--scale", "full", "--dry-run", "--set", "training.steps=7", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "32 cells: 8 mechanisms, 3 blocks" in result.stdout
    assert '"steps": 7' in result.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention-benchmrk"], "did you mean attention-benchmark?"),
        (["--scale", "latop"], "did you mean laptop?"),
        (["--of", "nothing"], "not a run folder"),
    ],
)
def test_bad_names_end_in_one_message(tmp_path, words, message):
    result = wattention("study", *words, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
