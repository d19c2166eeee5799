"""``wattention hardware``: the devices this installation knows, and every figure of one with its source."""

from __future__ import annotations

from typing import Annotated

import typer


def hardware(
    name: Annotated[str | None, typer.Argument(help="A device, or a TOML file.  [list all]")] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the file itself, to copy and change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """List the hardware profiles, or show one with the source of every figure."""
    import json

    from wattention.core.errors import UserError
    from wattention.hardware.catalog import load_profile, profile_names, profile_text
    from wattention.report.documents.hardware import hardware_document, hardware_list
    from wattention.report.json.hardware import hardware_to_json
    from wattention.report.renderers.terminal import print_document

    if toml:
        if name is None:
            raise UserError("--toml prints one profile", do="name it, e.g. wattention hardware rtx-4090 --toml")
        typer.echo(profile_text(name), nl=False)
        return
    profiles = {one: load_profile(one) for one in ((name,) if name is not None else profile_names())}
    print_document(hardware_list(profiles) if name is None else hardware_document(name, profiles[name]))
    if as_json:
        found = [hardware_to_json(one, profile) for one, profile in profiles.items()]
        typer.echo(json.dumps({"schema": 1, "devices": found}))
