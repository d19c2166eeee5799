"""``wattention study``: run a published study again with faithful mechanisms, and judge its claims one by one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from wattention.analysis.published_study import PublishedStudy
    from wattention.study.store import StoredRun

Option = typer.Option
PAGE = "study.html"


def study(
    name: Annotated[
        str, typer.Argument(help="A built-in study, or a TOML file that describes another.")
    ] = "attention-benchmark",
    scale: Annotated[str, Option(help="A scale of the study: laptop, full.")] = "laptop",
    of: Annotated[Path | None, Option(help="Judge by this run, which is on disk already, instead of running.")] = None,
    text: Annotated[Path | None, Option(help="File or folder to train on.  [Python's standard library]")] = None,
    blocks: Annotated[int | None, Option(help="Randomised blocks.  [the scale's]")] = None,
    device: Annotated[str | None, Option(help="cpu, cuda, cuda:1.  [the scale's]")] = None,
    setting: Annotated[
        list[str] | None, Option("--set", help="Any field of the run, e.g. training.steps=200; repeatable.")
    ] = None,
    out: Annotated[Path | None, Option(help="Run folder.  [runs/<time>]")] = None,
    resume: Annotated[
        bool, Option("--resume", help="Run only what is missing in --out, or in the newest run.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the configuration, run nothing.")] = False,
    as_json: Annotated[bool, Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Run a published study again: its eight mechanisms, here as their names say, and its claims judged.

    Every claim ends as: holds, does not hold, or undecided here, with the interval that says so. The laptop scale takes
    up to 30 minutes on two cores; the full scale is the study's own configuration, for a GPU.
    """
    from wattention.analysis.published_study import load_study
    from wattention.study.store import read_run

    published = load_study(name)
    if of is not None:
        _show(published, read_run(of), as_json=as_json)
        return
    from wattention.cli.compare import run_layers
    from wattention.study.configure import DEFAULTS

    given = {"blocks": blocks, "device": device, "data": {"text": text.resolve()} if text else None}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    scaled = {"mechanisms": list(published.names), **published.scale(scale).run}
    if dry_run:
        _preview(published, scale, [DEFAULTS, scaled, options], setting or [])
        return
    layers = [DEFAULTS, scaled, options]
    run = run_layers(layers, settings=setting or [], out=out, resume=resume, command=f"study {name} --scale {scale}")
    _show(published, run, as_json=as_json)


def _preview(published: PublishedStudy, scale: str, layers: list[dict[str, Any]], settings: list[str]) -> None:

    from wattention.study.configure import build_run_spec
    from wattention.study.grid import plan_cells
    from wattention.study.local import available_threads

    spec = build_run_spec(layers, settings, threads=available_threads())
    cells = plan_cells(spec)
    typer.echo(f"{published.title} ({published.citation}), scale {scale}: {published.scale(scale).about}")
    typer.echo(f"{len(cells)} cells: {len(spec.mechanisms)} mechanisms, {spec.blocks} blocks, each after its gate")
    typer.echo(spec.model_dump_json(indent=2, exclude_none=True))


def _show(published: PublishedStudy, run: StoredRun, *, as_json: bool) -> None:
    import json

    from wattention.cli.runs import write_file
    from wattention.core.errors import UserError
    from wattention.report.documents.study import study_document
    from wattention.report.json.study import study_to_json
    from wattention.report.renderers.html.page import html_page
    from wattention.report.renderers.terminal import print_document

    document = study_document(published, run)
    print_document(document, details=False)
    page = run.folder / PAGE
    typer.echo(f"\nrecords: {run.folder / 'records.jsonl'}")
    try:
        write_file(page, html_page(document).encode())
        typer.echo(f"page:    {page}")
    except UserError as error:  # the records are safe, and their tables are shown
        typer.echo(f"error: {error}", err=True)
    if as_json:
        typer.echo(json.dumps(study_to_json(published, run)))
