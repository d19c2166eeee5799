"""``wattention report`` and ``wattention list``: read runs that are on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from wattention.analysis.summary import Comparison
    from wattention.report.document import Document
    from wattention.report.documents.run import Pairs
    from wattention.study.store import StoredRun

SUFFIXES = {
    ".html": "html", ".md": "markdown", ".tex": "latex", ".csv": "csv", ".parquet": "parquet", ".json": "json",
    ".txt": "terminal",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(("terminal", *SUFFIXES.values())))
PAGE = "report.html"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, e.g. runs/20261130-120000.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; its suffix chooses the format.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}.  [the tables, in the terminal]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
    carbon: Annotated[
        str | None, typer.Option(help="Carbon factor instead of the run's own: '400 g/kWh', or a region: DE-2023.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Also print which pairs are decided, and what it takes to decide the rest.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Short for --format markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object a run.")] = False,
) -> None:
    """Show runs again, from their records: tables in the terminal, a page with figures, files for papers and programs.

    With --format html and no --out the page is written into the run's folder.
    """
    from wattention.study.store import read_run

    read = [read_run(run) for run in runs]
    if carbon is not None:
        read = [_with_carbon(run, carbon) for run in read]
    form = "markdown" if markdown and form is None else form
    if out is None and form is None:
        for run in read:
            show_run(run, as_json=False, with_pairs=pairs)
        if len(read) > 1:
            _print_across(read)
    else:
        _render(read, out, _chosen(form, out), force=force)
    if as_json:
        for run in read:
            typer.echo(_json(run))


def _with_carbon(run: StoredRun, text: str) -> StoredRun:
    """The run as it would be had it been told this factor: records hold joules, so nothing is measured again."""
    from dataclasses import replace

    from wattention.study.configure import carbon_spec

    measure = run.spec.measure.model_copy(update={"carbon": carbon_spec(text)})
    return replace(run, spec=run.spec.model_copy(update={"measure": measure}))


def list_runs(
    root: Annotated[Path, typer.Argument(help="Folder that holds the run folders.")] = Path("runs"),
) -> None:
    """List the runs in a folder: when they started, what they compare, how far they are."""
    from wattention.report.documents.run_list import run_list_document
    from wattention.report.renderers.terminal import print_document
    from wattention.study.store import list_run_folders, read_run

    folders = list_run_folders(root)
    print_document(run_list_document([read_run(folder) for folder in folders], root=root))


def show_run(run: StoredRun, *, as_json: bool, with_page: bool = False, with_pairs: bool = False) -> None:
    """Print a run's tables, write its page after them when asked to, and print its JSON object last when asked for.

    The pairs are printed when asked for, and where the run was to decide them.
    """
    from wattention.analysis.pairs import compare_pairs
    from wattention.analysis.summary import compare_records
    from wattention.core.errors import UserError
    from wattention.report.documents.comparison import comparison_document
    from wattention.report.renderers.terminal import print_document, print_sections
    from wattention.report.sections.pairs import pair_sections

    with_pairs_shown = with_pairs or run.spec.decide is not None
    pairs = compare_pairs(run.spec, run.records) if with_pairs_shown or with_page or as_json else {}
    comparison = compare_records(run.spec, run.records)
    print_document(comparison_document(comparison, name=run.folder.name, damage=run.damage), details=False)
    if with_pairs_shown:
        sections = pair_sections(run.spec, pairs)
        print_sections([section for section in sections if with_pairs or not section.detail])
    typer.echo(f"\nrecords: {run.folder / 'records.jsonl'}")
    if with_page:
        try:
            _write_page(run, comparison, pairs)
        except UserError as error:  # the records are safe, and their tables are shown
            typer.echo(f"error: {error}", err=True)
    if (run.folder / PAGE).exists():
        typer.echo(f"page:    {run.folder / PAGE}")
    if as_json:
        typer.echo(_json(run, comparison, pairs))


def _write_page(run: StoredRun, comparison: Comparison, pairs: Pairs) -> None:
    """Write the run's own page, which is made anew whenever the run has gone on; ``UserError`` where it cannot be."""
    from wattention.report.documents.run import run_document
    from wattention.report.renderers.html.page import html_page

    write_file(run.folder / PAGE, html_page(run_document(run, comparison, pairs)).encode())


def _json(run: StoredRun, comparison: Comparison | None = None, pairs: Pairs | None = None) -> str:
    from wattention.analysis.pairs import compare_pairs
    from wattention.analysis.summary import compare_records
    from wattention.report.json.comparison import comparison_json

    comparison = comparison or compare_records(run.spec, run.records)
    pairs = compare_pairs(run.spec, run.records) if pairs is None else pairs
    return comparison_json(comparison, folder=run.folder, pairs=pairs)


def _chosen(form: str | None, out: Path | None) -> str:
    from wattention.core.errors import UserError, unknown_name

    if form is not None:
        if form not in FORMATS:
            raise unknown_name("format", form, FORMATS)
        return form
    assert out is not None
    if out.suffix not in SUFFIXES:
        wanted = ", ".join(SUFFIXES)
        raise UserError("the file's suffix names no format", got=out, wanted=wanted, do="say which with --format")
    return SUFFIXES[out.suffix]


def _render(runs: list[StoredRun], out: Path | None, form: str, *, force: bool) -> None:
    """Render the runs and write them to a file, or to stdout where the format is text for it."""
    from wattention.core.errors import UserError

    if out is None and form == "html" and len(runs) == 1:
        out = runs[0].folder / PAGE
    if out is None and form in ("html", "parquet"):
        raise UserError(f"{form} is not for a terminal", do="name a file with --out")
    if out is not None and out.exists() and not force:
        raise UserError("the file exists", got=out, do="choose another with --out, or overwrite it with --force")
    data = _bytes(runs, form)
    if out is None:
        typer.echo(data.decode(), nl=False)
    else:
        write_file(out, data)
        typer.echo(f"written: {out}")


def _bytes(runs: list[StoredRun], form: str) -> bytes:
    if form == "json":
        return "".join(f"{_json(run)}\n" for run in runs).encode()
    if form == "parquet":
        from wattention.report.renderers.parquet import parquet_bytes

        return parquet_bytes(*_apart(runs))
    if form == "csv":
        from wattention.report.renderers.csv import csv_text

        return csv_text(*_apart(runs)).encode()
    return _text(_document(runs), form).encode()


def _apart(runs: list[StoredRun]) -> list[Document]:
    """One document a run, so that each row names its run, and the ratios of several."""
    from dataclasses import replace

    from wattention.report.documents.run import run_document
    from wattention.report.documents.several_runs import across_section

    documents = [run_document(run) for run in runs]
    if len(runs) == 1:
        return documents
    return [replace(_document(runs), sections=(across_section(runs),)), *documents]


def _text(document: Document, form: str) -> str:
    if form == "html":
        from wattention.report.renderers.html.page import html_page

        return html_page(document)
    if form == "markdown":
        from wattention.report.renderers.markdown import markdown_text

        return markdown_text(document)
    if form == "latex":
        from wattention.report.renderers.latex import latex_text

        return latex_text(document)
    import io

    from wattention.report.renderers.terminal import print_document

    text = io.StringIO()
    print_document(document, file=text)
    return text.getvalue()


def _document(runs: list[StoredRun]) -> Document:
    from wattention.report.documents.run import run_document
    from wattention.report.documents.several_runs import several_document

    return run_document(runs[0]) if len(runs) == 1 else several_document(runs)


def _print_across(runs: list[StoredRun]) -> None:
    from dataclasses import replace

    from wattention.report.documents.several_runs import across_section
    from wattention.report.renderers.terminal import print_document

    document = _document(runs)
    typer.echo("")
    print_document(replace(document, sections=(across_section(runs),)))


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; ``UserError`` where it cannot be written."""
    from wattention.core.errors import UserError

    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            "cannot write the report", got=f"{path}: {error.strerror}", do="choose another --out"
        ) from error
