"""Run a sweep: all missing blocks of all its points go to the launcher together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from wattention.core.errors import UserError
from wattention.study.launcher import Launcher, Watcher
from wattention.study.run import OpenRun, run_missing
from wattention.study.store import SWEEP_LOCK, RunFolder, StoredRun, hold_alone, read_run, write_whole
from wattention.study.sweep import Grid, Point, point_folders, sweep_json

DECLARATION = ".sweep.json"
"""Hidden, so that ``SWEEP/*`` names the runs alone."""


def run_sweep(
    folder: Path, grid: Grid, points: Sequence[Point], launcher: Launcher, watcher: Watcher, *, resume: bool
) -> Mapping[str, StoredRun]:
    """Run the missing cells of all points; return the runs by the name of their point.

    The sweep's folder is held for the whole of it; the points' own locks are not taken, for there may be thousands.

    Raises:
        UserError: the folder is taken or holds another sweep; or some cells could not be run.
    """
    start_sweep(folder, grid, resume=resume)
    folders = point_folders(folder, points)
    with hold_alone(folder, SWEEP_LOCK):
        runs = {}
        for point in points:
            run = RunFolder(folders[point.name])
            run.start(point.spec, resume=True)
            runs[run.folder] = OpenRun.of(run, point.spec)
        run_missing(runs, launcher, watcher)
    return {name: read_run(path) for name, path in folders.items()}


def start_sweep(folder: Path, grid: Grid, *, resume: bool) -> None:
    """Write the declaration of a new sweep, or check that a resumed one asks for the same.

    Raises:
        UserError: the folder cannot be written, or holds a sweep already or another one.
    """
    path, asked = folder / DECLARATION, sweep_json(grid)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError("cannot write the sweep's folder", got=f"{folder}: {error.strerror}") from error
    if not path.exists():
        write_whole(path, json.dumps(asked, indent=2) + "\n")
        return
    if not resume:
        raise UserError(
            "the folder holds a sweep already",
            got=folder,
            do="continue it with --resume, or choose another folder with --out DIR",
        )
    stored = json.loads(path.read_text())
    if stored["base"] != json.loads(json.dumps(asked["base"])):
        raise UserError(
            "a sweep resumes only under the base it was started with",
            got=", ".join(sorted(k for k in {*stored["base"], *asked["base"]} if _differ(stored, asked, k))),
            do="restore [base], or start a new sweep with --out DIR; the grid may grow",
        )
    write_whole(path, json.dumps(asked, indent=2) + "\n")


def _differ(stored: Mapping[str, Mapping[str, object]], asked: Mapping[str, Mapping[str, object]], key: str) -> bool:
    return stored["base"].get(key) != asked["base"].get(key)


def stored_runs(folder: Path, points: Sequence[Point]) -> dict[str, StoredRun]:
    """Return the runs of those points that have been started."""
    folders = point_folders(folder, points)
    return {name: read_run(path) for name, path in folders.items() if (path / "run.json").exists()}
