"""``wattention doctor``: what can be measured on this machine, what is missing, why, and how to get it."""

from __future__ import annotations

from typing import Annotated

import typer


def doctor(
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, or auto: the cpu and a GPU.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Say what can be measured here, what is missing, why, and how to get it."""
    import json

    from wattention.meters.survey import survey_meters
    from wattention.report.renderers.terminal import print_section
    from wattention.report.sections.survey import survey_section

    surveys = [survey_meters(name) for name in _devices(device)]
    for number, survey in enumerate(surveys):
        if number:
            typer.echo()
        print_section(survey_section(survey))
    if as_json:
        typer.echo(json.dumps({"schema": 1, "devices": [survey.to_json() for survey in surveys]}))


def _devices(asked: str) -> list[str]:
    import torch

    from wattention.core.errors import UserError

    has_gpu = torch.cuda.is_available()
    if asked == "auto":
        return ["cpu", "cuda"] if has_gpu else ["cpu"]
    kind, _, index = asked.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()) or (kind == "cpu" and index):
        raise UserError("unknown device", got=asked, wanted="cpu, cuda, cuda:INDEX or auto")
    if kind == "cuda" and not (has_gpu and int(index or 0) < torch.cuda.device_count()):
        raise UserError(
            "this GPU is not there",
            got=asked,
            wanted=f"one of the {torch.cuda.device_count() if has_gpu else 0} CUDA devices torch sees",
            do="install a driver and a CUDA build of torch, or use --device cpu",
        )
    return [asked]
