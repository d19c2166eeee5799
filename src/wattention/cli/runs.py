"""``wattention report`` and ``wattention list``: read runs that are on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wattention.study.store import StoredRun


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, e.g. runs/20261130-120000.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Print the tables of a run again, from its records."""
    from wattention.study.store import read_run

    show_run(read_run(run), as_json=as_json, markdown=markdown)


def list_runs(
    root: Annotated[Path, typer.Argument(help="Folder that holds the run folders.")] = Path("runs"),
) -> None:
    """List the runs in a folder: when they started, what they compare, how far they are."""
    from wattention.report.run_list import run_list_document
    from wattention.report.terminal import print_document
    from wattention.study.store import list_run_folders, read_run

    folders = list_run_folders(root)
    print_document(run_list_document([read_run(folder) for folder in folders], root=root))


def show_run(run: StoredRun, *, as_json: bool, markdown: bool = False) -> None:
    """Print a run's tables, and its JSON object last when asked for."""
    from wattention.analysis.summary import compare_records
    from wattention.report.comparison import comparison_document
    from wattention.report.comparison_json import comparison_json
    from wattention.report.markdown import markdown_text
    from wattention.report.terminal import print_document

    comparison = compare_records(run.spec, run.records)
    document = comparison_document(comparison, name=run.folder.name, damage=run.damage)
    if markdown:
        typer.echo(markdown_text(document))
    else:
        print_document(document)
        typer.echo(f"\nrecords: {run.folder / 'records.jsonl'}")
    if as_json:
        typer.echo(comparison_json(comparison, folder=run.folder))
