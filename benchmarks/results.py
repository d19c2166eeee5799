"""Where a benchmark's JSON goes: benchmarks/results/NAME.json, beside the host it was measured on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def host_facts() -> dict[str, Any]:
    """Return what a committed result must name: the host, its processor, versions, settings, load, time, code."""
    from wattention.meters.environment import record_environment

    environment = record_environment()
    kept = ("started_utc", "host", "python", "packages", "torch", "variables", "code")
    return {**{key: environment[key] for key in kept}, "load_average": os.getloadavg()[0]}


def stored(name: str) -> dict[str, Any]:
    """Return the result on disk, empty where there is none; for benchmarks that are run in pieces."""
    path = FOLDER / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_result(name: str, result: dict[str, Any]) -> None:
    """Write a result with its host, and say where it went."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps({"benchmark": name, **result, "environment": host_facts()}, indent=1) + "\n")
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit("a module of the benchmarks, not a benchmark")
