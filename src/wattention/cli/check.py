"""``wattention check``: the conformance gate on mechanisms by name, or on files of the user's own."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def check(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE.py]...", help="Mechanisms to check; all of the built-in ones by default."),
    ] = None,
    *,
    device: Annotated[str, typer.Option(help="Where to run them: cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    seed: Annotated[int, typer.Option(help="Seed of parameters and inputs.")] = 0,
    details: Annotated[bool, typer.Option("--details", help="Show what every clause found.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
) -> None:
    """Prove mechanisms against their references, clause by clause.

    Exit code 0: every clause holds; 1: a clause failed; 2: bad input.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its start on stderr otherwise
    import json

    import torch

    from wattention.lab.conformance import judged_dtype, run_gate, usable_device
    from wattention.mechanisms.base import MECHANISMS

    torch.set_num_threads(1)  # the shapes are small, and threads that wait for each other are slower than one
    wanted, place = judged_dtype(dtype), usable_device(device)
    records = [MECHANISMS.load(name) for name in mechanisms or MECHANISMS.names()]  # all names, before any is run
    reports = [run_gate(record, device=place, dtype=wanted, seed=seed) for record in records]
    if as_json:
        passed = all(report.passed for report in reports)
        typer.echo(json.dumps({"schema": 1, "passed": passed, "mechanisms": [r.to_json() for r in reports]}))
    else:
        from wattention.report.documents.gate import gate_document
        from wattention.report.renderers.terminal import print_document

        print_document(gate_document(reports, details=details))
    if not all(report.passed for report in reports):
        raise typer.Exit(1)
