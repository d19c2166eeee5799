"""``wattention calibrate``: measure this machine and write its hardware profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Profile to write.")] = Path("my-machine.toml"),
    seconds: Annotated[float, typer.Option(help="Time to spend.")] = 120.0,
    threads: Annotated[int | None, typer.Option(help="CPU threads.  [all cores of this process]")] = None,
    malloc: Annotated[str, typer.Option(help="Allocator setting, as in a run: keep or default.")] = "keep",
    as_json: Annotated[bool, typer.Option("--json", help="Last line of stdout: one JSON object.")] = False,
) -> None:
    """Time this machine's operators, memory levels, launches and, where it has counters, its energy.

    The profile is accepted wherever a device is: wattention predict --hardware my-machine.toml
    """
    import json

    from wattention.core.errors import unknown_name
    from wattention.hardware.profile import read_profile
    from wattention.report.documents.calibration import calibration_document
    from wattention.report.renderers.terminal import print_document
    from wattention.study.calibration import profile_toml, run_calibration
    from wattention.study.local import MALLOC_SETTINGS, available_threads

    if malloc not in MALLOC_SETTINGS:
        raise unknown_name("allocator setting", malloc, MALLOC_SETTINGS)
    found = run_calibration(seconds=seconds, threads=threads or available_threads(), malloc=malloc)
    output.write_text(profile_toml(found), encoding="utf-8")
    profile = read_profile(output)
    print_document(calibration_document(profile, file=str(output)))
    if as_json:
        print(json.dumps({"schema": 1, "profile": str(output), "contents": profile.model_dump(mode="json")}))
