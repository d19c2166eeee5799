"""Large studies: planning a grid of 100,000 cells, scanning 1,000,000 records, rendering a report over 10,000.

Each part runs in a process of its own, so that its peak memory is its own. Records are made up: about a kilobyte each
for the scan (a run of length cells at few lengths), whole training records for the report.

Run: python benchmarks/scale.py [plan | scan | report]...     (all of them by default)
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from results import stored, write_result

CELLS, RECORDS, REPORTED = 100_000, 1_000_000, 10_000
MECHANISMS = ["baseline", "sdpa", "flash", "gqa", "linear", "sliding_window", "lsh", "mla"]


def plan() -> dict[str, Any]:
    """Read a grid, build every specification, plan every cell and block."""
    from wattention.study.grid import plan_blocks
    from wattention.study.sweep import read_grid

    # 8 gates and 3 blocks of 8 mechanisms, training and lengths: 56 cells a point
    grid = {"length": [64, 128, 256, 512], "batch": [1, 2, 4, 8], "seed": list(range(28)), "steps": [10, 20, 40, 80]}
    base = {"mechanisms": MECHANISMS, "blocks": 3}
    began = time.perf_counter()
    points = list(read_grid({"base": base, "grid": grid}).points(threads=2))
    specified = time.perf_counter()
    cells = sum(len(b.cells) for p in points for b in plan_blocks(p.spec, (), folder=Path(p.name)))
    ended = time.perf_counter()
    assert cells >= CELLS, cells
    return {"points": len(points), "cells": cells, "specify_s": specified - began, "plan_s": ended - specified}


def scan() -> dict[str, Any]:
    """Look for the missing cells of a run with a million records: first without an index, then with it."""
    from wattention.core.quantities import measured
    from wattention.core.records import CellKey, CellRecord, Phase
    from wattention.study.scan import scan_run

    readings = {f"reading_{n}": measured(1.0 + n, "s", "a clock, read twice") for n in range(7)}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "records.jsonl"
        with path.open("w") as file:
            per_block = len(MECHANISMS)
            template = CellRecord(
                key=CellKey(kind="train", mechanism="M", block=0),
                order=0, status="ok", started_utc="2026-01-01T00:00:00+00:00",
                phases={"train": Phase(readings=readings)},
                environment={"host": {"hostname": "node", "cpu": "a processor"}, "packages": {"torch": "2"}},
            )  # fmt: skip
            line = json.dumps(template.to_json(), separators=(",", ":"))
            head, tail = line.split('"mechanism":"M","block":0', 1)
            for number in range(RECORDS):
                label, block = MECHANISMS[number % per_block], number // per_block
                file.write(f'{head}"mechanism":"{label}","block":{block}{tail}\n')
        size = path.stat().st_size
        times = []
        for _ in range(2):
            began = time.perf_counter()
            found = scan_run(Path(name))
            times.append(time.perf_counter() - began)
            assert len(found.keys) == RECORDS
    return {"records": RECORDS, "bytes": size, "first_s": times[0], "indexed_s": times[1]}


def report() -> dict[str, Any]:
    """Read, summarise and render a run of ten thousand records as one page."""
    from wattention.analysis.summary import compare_records
    from wattention.report.documents.run import run_document
    from wattention.report.renderers.html.page import html_page
    from wattention.study.grid import plan_cells
    from wattention.study.store import read_run

    example = read_run(Path(__file__).parents[1] / "docs" / "example-run")
    by_cell = {(r.key.kind, r.key.mechanism): r for r in example.records}
    run = example.spec.replace(blocks=-(-REPORTED // (2 * len(example.spec.mechanisms))))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "run.json").write_text(run.model_dump_json())
        with (Path(name) / "records.jsonl").open("w") as file:
            for cell in plan_cells(run):
                record = replace(by_cell[cell.key.kind, cell.key.mechanism], key=cell.key, order=cell.order)
                file.write(json.dumps(record.to_json(), separators=(",", ":")) + "\n")
        size = (Path(name) / "records.jsonl").stat().st_size
        marks = [time.perf_counter()]
        read = read_run(Path(name))
        marks.append(time.perf_counter())
        comparison = compare_records(read.spec, read.records)
        marks.append(time.perf_counter())
        page = html_page(run_document(read, comparison))
        marks.append(time.perf_counter())
    read_s, summarise_s, render_s = (b - a for a, b in itertools.pairwise(marks))
    return {
        "records": len(read.records), "bytes": size, "page_bytes": len(page.encode()),
        "read_s": read_s, "summarise_s": summarise_s, "render_s": render_s,
    }  # fmt: skip


PARTS = {"plan": plan, "scan": scan, "report": report}


def main() -> None:
    """Measure the parts asked for and write benchmarks/results/scale.json."""
    result = {name: part for name, part in stored("scale").items() if name in PARTS}
    for name in sys.argv[1:] or PARTS:
        done = subprocess.run([sys.executable, __file__, "--part", name], capture_output=True, text=True, check=True)
        result[name] = json.loads(done.stdout.splitlines()[-1])
        print(name, result[name])
    write_result("scale", result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        found = PARTS[sys.argv[2]]()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**found, "peak_rss_bytes": peak}))
    else:
        main()
