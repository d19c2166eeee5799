"""The command ``wattention``: every sub-command lives in a file of this folder and imports what it needs when it runs.

Errors a user can cause end in one message on stderr and exit code 2, without a traceback.
"""

from __future__ import annotations

import sys

import typer

from wattention.cli import (
    advise,
    calibrate,
    check,
    compare,
    doctor,
    hardware,
    io,
    meter,
    pebble,
    predict,
    runs,
    study,
    sweep,
    watch,
)
from wattention.core.errors import UserError

app = typer.Typer(
    name="wattention",
    help="Which attention mechanism to train with, what it costs, why, and how far it is from the limit.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(compare.compare)
app.command()(sweep.sweep)
app.command()(check.check)
app.command()(study.study)
app.command()(runs.report)
app.command(name="list")(runs.list_runs)
app.command()(watch.watch)
app.command()(doctor.doctor)
app.command()(hardware.hardware)
app.command()(advise.advise)
app.command()(calibrate.calibrate)
app.command()(predict.predict)
app.add_typer(io.app, name="io")
app.add_typer(pebble.app, name="pebble")
app.add_typer(meter.app, name="meter")


def main() -> None:
    """Run the command line."""
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
