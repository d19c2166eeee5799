"""A sweep as one line of JSON: every point with its values and its comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from wattention.analysis.summary import compare_records
from wattention.report.json.comparison import comparison_to_json
from wattention.study.store import StoredRun


def sweep_json(folder: Path, values: Mapping[str, Mapping[str, str]], runs: Mapping[str, StoredRun]) -> str:
    """Return one line: ``{"schema", "sweep", "points": [{"point", "values", ...}]}``."""
    points = [
        {
            "point": point,
            "values": dict(values[point]),
            **comparison_to_json(compare_records(run.spec, run.records), folder=run.folder),
        }
        for point, run in runs.items()
    ]
    return json.dumps({"schema": 1, "sweep": str(folder), "points": points}, allow_nan=False)
