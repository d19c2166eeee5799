"""``wattention meter``: the instruments themselves; ``selftest`` finds what they are worth on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="The instruments themselves.", no_args_is_help=True)


@app.callback()
def _meter() -> None:
    """Commands about instruments."""


@app.command()
def selftest(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    seconds: Annotated[
        float | None,
        typer.Option(help="About how long it may take.  [as long as the slowest counter needs; 3 s without one]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Measure loads of known size and say what each meter is worth: linear, repeatable, in time, agreeing with others.

    What this machine cannot measure is said with its reason; everything it has is tested. Finding a fault is a result:
    the exit code is 0.
    """
    import json

    from wattention.core.errors import UserError
    from wattention.meters.selftest import run_selftest
    from wattention.meters.selftest_load import check_device, open_rig
    from wattention.report.renderers.terminal import print_section
    from wattention.report.sections.selftest import selftest_section

    if seconds is not None and not seconds > 0:
        raise UserError("--seconds", got=seconds, wanted="a positive number")
    check_device(device)
    rig = open_rig(device)
    with rig.panel:
        expected_s = rig.needed_s() if seconds is None else seconds
        typer.echo(f"working and resting for about {expected_s:.0f} s; leave the machine alone", err=True)
        test = run_selftest(rig, seconds=seconds)
    print_section(selftest_section(test))
    if as_json:
        typer.echo(json.dumps(test.to_json()))
