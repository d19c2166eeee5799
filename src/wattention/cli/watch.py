"""``wattention watch``: follow a comparison that runs in another terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def watch(run: Annotated[Path, typer.Argument(help="Folder of the run, e.g. runs/20261130-120000.")]) -> None:
    """Follow a running comparison from another terminal, until it ends; Ctrl-C stops watching, not the comparison."""
    from wattention.report.progress import ProgressDisplay
    from wattention.study.follow import follow_run

    try:
        with ProgressDisplay() as display:
            end = follow_run(run, display)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if end == "finished":
        typer.echo(f"finished; see: wattention report {run}")
    else:
        typer.echo(f"stopped: nobody writes into it; go on with: wattention compare --resume --out {run}")
