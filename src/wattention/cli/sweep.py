"""``wattention sweep``: many comparisons, declared as a grid in TOML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattention.cli.launching import (
    DryRun,
    LauncherName,
    Launching,
    RayAddress,
    RayResources,
    SlurmSettings,
    new_folder,
)

if TYPE_CHECKING:
    from wattention.study.sweep import Grid, Point

Option = typer.Option


def sweep(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="Tables [base], [grid] and [[skip]].")],
    out: Annotated[Path | None, Option(help="Sweep folder; one run folder a point below it.  [sweeps/<time>]")] = None,
    resume: Annotated[bool, Option("--resume", help="Run only what is missing in --out; the grid may grow.")] = False,
    launcher: LauncherName = "local",
    ray_address: RayAddress = None,
    ray_resources: RayResources = None,
    slurm: SlurmSettings = None,
    dry_run: DryRun = False,
    as_json: Annotated[bool, Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Run a grid of comparisons: mechanisms, presets, lengths, batches, precisions, seeds, devices, any field.

    Every point of the grid is a comparison of its own, in a folder of its own: wattention report SWEEP/* shows them.
    """
    from dataclasses import replace

    from wattention.core.errors import UserError
    from wattention.lab.quality.matching import match_widths
    from wattention.study.configure import read_toml
    from wattention.study.local import available_threads
    from wattention.study.sweep import read_grid
    from wattention.study.world import find_world

    if find_world() is not None:
        raise UserError(
            "a sweep has many models", got="torchrun", do="run torchrun -m wattention compare for each point"
        )
    declared = read_grid(read_toml(grid))
    points = tuple(
        replace(point, spec=match_widths(point.spec)) for point in declared.points(threads=available_threads())
    )
    if not points:
        raise UserError("the grid has no points", got=grid, do="leave out fewer of them with [[skip]]")
    if resume and out is None:
        raise UserError("no sweep to resume", do="name the sweep's folder with --out")
    folder = out or new_folder("sweeps")
    launching = Launching(name=launcher, ray_address=ray_address, ray_resources=ray_resources, slurm=slurm or [])
    if dry_run:
        _show_plan(folder, points, launching)
    else:
        _run(folder, declared, points, launching, resume=resume, as_json=as_json)


def _show_plan(folder: Path, points: tuple[Point, ...], launching: Launching) -> None:
    from wattention.report.documents.run_plan import plan_document
    from wattention.report.renderers.terminal import print_document
    from wattention.study.forecast import forecaster_from
    from wattention.study.grid import plan_blocks
    from wattention.study.run_sweep import stored_runs
    from wattention.study.scan import scan_run
    from wattention.study.store import list_run_folders, read_run
    from wattention.study.sweep import point_folders

    places = point_folders(folder, points)
    done = {point.name: scan_run(places[point.name]).keys for point in points}
    if launching.name == "slurm":
        blocks = [b for p in points for b in plan_blocks(p.spec, done[p.name], folder=places[p.name])]
        typer.echo(launching.script(blocks))
        return
    earlier = [*stored_runs(folder, points).values(), *map(read_run, list_run_folders(Path("runs")))]
    plans = [(point.name, point.spec, done[point.name]) for point in points]
    print_document(plan_document(plans, forecaster_from(earlier)))


def _run(
    folder: Path, grid: Grid, points: tuple[Point, ...], launching: Launching, *, resume: bool, as_json: bool
) -> None:
    from wattention.report.documents.sweep import sweep_document
    from wattention.report.json.sweep import sweep_json
    from wattention.report.progress import ProgressDisplay
    from wattention.report.renderers.terminal import print_document
    from wattention.study.run_sweep import run_sweep, start_sweep

    launcher = launching.open(points[0].spec)
    from wattention.lab.preflight import check_run

    start_sweep(folder, grid, resume=resume)
    for point in points:
        launching.open(point.spec)
        check_run(point.spec, here=launching.name == "local")
    try:
        with ProgressDisplay() as display:
            runs = run_sweep(folder, grid, points, launcher, display, resume=True)
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped; everything finished is in {folder}\n"
            f"go on with: wattention sweep GRID.toml --resume --out {folder}{launching.words}",
            err=True,
        )
        raise typer.Exit(130) from None
    axes = [axis for axis, values in grid.axes.items() if len(values) > 1]
    values = {point.name: {axis: str(point.values[axis]) for axis in axes} for point in points}
    print_document(sweep_document(folder.name, axes, values, runs))
    typer.echo(f"\npoints: {folder}/*; each is a run: wattention report {folder}/*")
    if as_json:
        typer.echo(sweep_json(folder, values, runs))
