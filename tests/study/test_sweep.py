import glob
import json
from pathlib import Path

import pytest

from fakes.study import FakeLauncher, Silent
from wattention.core.errors import UserError
from wattention.core.quantities import Absent, Quantity
from wattention.core.records import CellKey
from wattention.report.documents.run_plan import plan_document
from wattention.report.documents.sweep import sweep_document
from wattention.report.json.sweep import sweep_json
from wattention.study.configure import read_toml
from wattention.study.forecast import forecast_run, forecaster_from
from wattention.study.run_sweep import run_sweep
from wattention.study.store import SWEEP_LOCK, RunFolder, hold_alone, list_run_folders, read_run
from wattention.study.sweep import read_grid

BASE = {"mechanisms": ["baseline", "flash"], "measure": {"lengths": []}, "blocks": 1}


def points_of(threads=1, **grid):
    return list(read_grid({"base": BASE, **grid}).points(threads=threads))


def test_the_points_are_the_product_of_the_axes_and_each_is_a_whole_run():
    points = points_of(grid={"preset": ["tiny", "gpt2"], "length": [64, 128], "training.learning_rate": [1e-3]})
    assert [point.name for point in points] == [
        "preset-tiny_length-64", "preset-tiny_length-128", "preset-gpt2_length-64", "preset-gpt2_length-128",
    ]  # fmt: skip
    assert [point.spec.model.context for point in points] == [64, 128, 64, 128]
    assert [point.spec.model.layers for point in points] == [2, 2, 12, 12]
    assert {point.spec.training.learning_rate for point in points} == {1e-3}


def test_every_declared_axis_sets_its_field():
    grid = {
        "mechanisms": [["baseline", "mla"]], "preset": ["gpt2"], "length": [96], "batch": [3],
        "precision": ["bfloat16"], "steps": [7], "seed": [5], "device": ["cuda"], "blocks": [4],
    }  # fmt: skip
    (point,) = points_of(grid=grid)
    run = point.spec
    assert (run.model.context, run.model.width, run.training.batch, run.training.steps) == (96, 768, 3, 7)
    assert (run.training.precision, run.seed, run.device, run.blocks) == ("bfloat16", 5, "cuda", 4)
    assert [choice.label for choice in run.mechanisms] == ["baseline", "mla"]


def test_points_that_match_an_entry_of_skip_are_left_out():
    points = points_of(grid={"batch": [1, 2], "seed": [0, 1]}, skip=[{"batch": 2, "seed": 1}])
    assert [point.name for point in points] == ["batch-1_seed-0", "batch-1_seed-1", "batch-2_seed-0"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"gird": {}}, "unknown table of a sweep(.|\n)*did you mean grid"),
        ({}, "the sweep has no grid"),
        ({"grid": {"lenght": [1]}}, "unknown axis of the grid(.|\n)*did you mean length"),
        ({"grid": {"length": 512}}, "the axis length is no list(.|\n)*got: 512"),
        ({"grid": {"length": []}}, "the axis length is no list"),
        ({"grid": {"seed": [1, 1]}}, "the axis seed repeats a value"),
        ({"grid": {"threads": [1, 2]}}, r"threads cannot differ within a sweep(.|\n)*\[base\]"),
        ({"grid": {"mechanisms": ["baseline", "flash"]}}, "lists of mechanisms"),
        ({"grid": {"seed": [1]}, "skip": [{"batch": 2}]}, "unknown axis in skip"),
        ({"grid": {"length": [64, 63.5]}}, "the point length-63.5 of the grid: ModelSpec.context"),
        ({"grid": {"preset": ["tiny", "gtp2"]}}, "the point preset-gtp2 of the grid: unknown preset(.|\n)*gpt2"),
        ({"grid": {"training.lr": [1.0]}}, "the point point of the grid: TrainingSpec has no field lr"),
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused_with_words(data, words):
    with pytest.raises(UserError, match=words):
        list(read_grid({"base": BASE, **data}).points(threads=1))


@pytest.fixture
def grid():
    return read_grid({"base": BASE, "grid": {"length": [64, 128], "seed": [0, 1]}})


def run(folder, grid, launcher=None, watcher=None, resume=False):
    points = list(grid.points(threads=1))
    return run_sweep(folder, grid, points, launcher or FakeLauncher(), watcher or Silent(), resume=resume)


def test_a_sweep_leaves_one_ordinary_run_a_point_and_nothing_else_that_a_glob_sees(tmp_path, grid):
    silent = Silent()
    runs = run(tmp_path / "s", grid, watcher=silent)
    assert silent.planned == len(silent.ran) == 4 * 4
    folders = sorted(map(Path, glob.glob(f"{tmp_path}/s/*")))  # noqa: PTH207  (pathlib's glob sees hidden files)
    assert [folder.name for folder in folders] == sorted(runs)
    assert sorted(list_run_folders(tmp_path / "s")) == folders
    assert all(len(read_run(folder).records) == 4 for folder in folders)


def test_a_sweep_resumes_exactly_the_missing_cells_and_may_grow(tmp_path, grid):
    stop = CellKey(kind="train", mechanism="flash", block=0)
    first = Silent()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, grid, FakeLauncher({stop: KeyboardInterrupt()}), first)
    larger = read_grid({"base": BASE, "grid": {"length": [64, 128], "seed": [0, 1, 2]}})
    again = Silent()
    runs = run(tmp_path, larger, watcher=again, resume=True)
    assert (again.planned, again.done) == (6 * 4, len(first.ran))
    assert all(len(one.records) == 4 and one.damage == () for one in runs.values())


def test_a_sweep_under_another_base_or_held_by_another_process_is_refused(tmp_path, grid):
    run(tmp_path, grid)
    with pytest.raises(UserError, match=r"holds a sweep already(.|\n)*--resume"):
        run(tmp_path, grid)
    other = read_grid({"base": BASE | {"blocks": 3}, "grid": {"length": [64, 128], "seed": [0, 1]}})
    with pytest.raises(UserError, match=r"only under the base(.|\n)*got: blocks"):
        run(tmp_path, other, resume=True)
    with hold_alone(tmp_path, SWEEP_LOCK), pytest.raises(UserError, match="another run is writing"):
        run(tmp_path, grid, resume=True)


def test_the_summary_has_a_row_for_each_point_and_mechanism_with_ratios_to_its_own_baseline(tmp_path, grid):
    runs = run(tmp_path / "s", grid)
    values = {name: {"length": name.split("_")[0], "seed": name.split("_")[1]} for name in runs}
    table = sweep_document("s", ["length", "seed"], values, runs).sections[0].table
    keys = [column.key for column in table.columns]
    ratios = {row[2].content: row[keys.index("time_ratio")].content for row in table.rows}
    assert len(table.rows) == 4 * 2
    assert ratios["flash"].value == pytest.approx(0.5)
    assert isinstance(ratios["baseline"], Absent)
    data = json.loads(sweep_json(tmp_path / "s", values, runs))
    assert [point["values"]["length"] for point in data["points"]] == ["length-64"] * 2 + ["length-128"] * 2


class Clocked(FakeLauncher):
    """Says of each cell how long it took."""

    def run(self, cell, **options):
        record = super().run(cell, **options)
        record.environment["cell_s"] = {"gate": 1.0, "train": 10.0}[cell.key.kind]
        return record


def test_a_forecast_sums_what_earlier_runs_of_the_same_cells_took_and_says_when_there_are_none(tmp_path, grid):
    runs = run(tmp_path / "s", grid, Clocked())
    one = runs["length-64_seed-0"]
    more = one.spec.replace(blocks=5, seed=9)
    expected = forecast_run(more, [one]).time_s
    assert isinstance(expected, Quantity)
    assert (expected.value, expected.unit, expected.origin) == (2 * 1.0 + 5 * 2 * 10.0, "s", "predicted")
    other = forecast_run(runs["length-128_seed-0"].spec, [one])
    assert other.time_s == Absent("no earlier run measured 4 of its 4 cells")
    assert isinstance(forecast_run(more, [one]).energy_j, Absent), "no meter read joules"


def test_the_plan_counts_points_cells_and_what_is_missing(tmp_path, grid):
    points = list(grid.points(threads=1))
    folder = RunFolder(tmp_path / "r")
    folder.start(points[0].spec, resume=False)
    plans = [(point.name, point.spec, ()) for point in points]
    document = plan_document(plans, forecaster_from([]))
    assert document.answer == "4 runs, 16 cells, 16 of them to run"
    assert "No prediction of time: no earlier run measured 4 of its 4 cells." in document.sections[0].notes


def test_the_example_for_a_cluster_is_a_grid_of_fourteen_runs():
    example = read_toml(Path(__file__).parents[2] / "examples" / "sweep.toml")
    points = list(read_grid(example).points(threads=1))
    assert len(points) == 2 * 4 * 2 - 2
    assert {point.spec.model.context for point in points if point.spec.model.layers == 24} == {512, 1024, 2048}
