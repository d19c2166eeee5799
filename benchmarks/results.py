"""Where a benchmark's JSON goes: benchmarks/results/NAME.json, with the host it was measured on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"


def write_result(name: str, result: dict[str, Any]) -> None:
    """Write a result beside the environment that produced it, print it, and say where it went."""
    from wattention.meters.environment import record_environment

    environment = record_environment()
    kept = ("started_utc", "host", "python", "packages", "torch", "variables", "code")
    out = {"benchmark": name, **result, "environment": {key: environment[key] for key in kept}}
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(out, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit("a module of the benchmarks, not a benchmark")
