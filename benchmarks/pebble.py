"""How fast the pebble game is solved, and the table that confronts optima, schedules and bounds.

    python benchmarks/pebble.py attention            attention, 2 tokens of dim 2 (36 nodes), every rule but prbp
    python benchmarks/pebble.py matmul               3x3x3 product (45 nodes), computed once
    python benchmarks/pebble.py accumulators         3x3x3 product and attention with accumulators
    python benchmarks/pebble.py gap                  heuristic against optimum on all small graphs
    python benchmarks/pebble.py large                heuristic on thousands of nodes
    python benchmarks/pebble.py bridge               docs/theory/pebble-bridge.md

Each piece takes less than two minutes on one core and replaces its part of benchmarks/results/pebble.json. Compiling is
not part of the times: a small game of each kind is solved first.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from results import stored, write_result
from wattention.iocomplexity.pebble.bridge import (
    Case,
    Confrontation,
    Recomputation,
    compare_recomputation,
    confront,
)
from wattention.iocomplexity.pebble.exact import solve
from wattention.iocomplexity.pebble.graph import Graph, compulsory
from wattention.iocomplexity.pebble.graphs.family import parse
from wattention.iocomplexity.pebble.heuristic import pebble
from wattention.iocomplexity.pebble.rules import named
from wattention.iocomplexity.pebble.verify import verify
from wattention.report.standalone.pebble_text import confrontation_table

PAGE = Path(__file__).parents[1] / "docs" / "theory" / "pebble-bridge.md"
Row = dict[str, Any]


def graph_for(spec: str, rules: str) -> Graph:
    return parse(spec, sum="word" if rules == "fma" else "chain")


def solved(spec: str, rules: str, fast_words: int, **limits: float) -> Row:
    graph = graph_for(spec, rules)
    solution = solve(graph, fast_words, named(rules), **limits)  # type: ignore[arg-type]
    row = solution.to_json()
    del row["moves"], row["nodes"]
    row = {"graph": spec, "nodes": len(graph), "rules": rules, "fast_words": fast_words, **row}
    row["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(row), flush=True)
    return row


def attention() -> list[Row]:
    spec = "attention:tokens=2,dim=2"
    rows = [solved(spec, "no-recompute", m) for m in range(4, 9)]
    rows += [solved(spec, "hong-kung", m, time_limit_s=20) for m in range(8, 3, -1)]
    return rows + [solved(spec, "sliding", m, time_limit_s=15) for m in range(8, 3, -1)]


def matmul() -> list[Row]:
    return [solved("matmul:m=3,k=3,n=3", "no-recompute", m) for m in range(4, 13)]


def accumulators() -> list[Row]:
    rows = [solved("matmul:m=3,k=3,n=3", "fma", m) for m in range(12, 2, -1)]
    return rows + [solved("attention:tokens=2,dim=2", "fma", m) for m in range(3, 9)]


def gap() -> list[Row]:
    rows = []
    small = {
        "matmul:m=2,k=2,n=2": (4, 5, 6), "matmul:m=2,k=3,n=2": (4, 6, 8), "matmul:m=3,k=2,n=3": (4, 6, 8),
        "attention:tokens=2,dim=1": (4, 5, 6), "attention:tokens=2,dim=2": (5, 6, 7),
        "attention:tokens=3,dim=1,mask=causal": (4, 6, 8), "fft:points=8": (4, 6), "diamond:rows=5": (3, 4),
        "tree:leaves=16": (3, 4),
    }  # fmt: skip
    for spec, sizes in small.items():
        for rules in ("no-recompute", "hong-kung", "sliding", "prbp", "fma"):
            for m in sizes:
                graph = graph_for(spec, rules)
                game = pebble(graph, m, named(rules))
                cost = verify(graph, game, m, named(rules)).cost()
                row = solved(spec, rules, m, time_limit_s=2)
                row = {key: row[key] for key in ("graph", "nodes", "rules", "fast_words", "optimum", "lower_bound")}
                optimum = row["optimum"]
                rows.append(
                    {**row, "heuristic": cost, "gap": None if optimum is None else round(cost / optimum - 1, 4)}
                )
    return rows


def large() -> list[Row]:
    rows = []
    for spec, m in (
        ("matmul:m=12,k=12,n=12", 64), ("attention:tokens=16,dim=8", 64), ("attention:tokens=16,dim=8", 256),
        ("fft:points=512", 32),
    ):  # fmt: skip
        for rules in ("no-recompute", "prbp", "fma"):
            graph = graph_for(spec, rules)
            start = time.perf_counter()
            game = pebble(graph, m, named(rules))
            seconds = time.perf_counter() - start
            cost = verify(graph, game, m, named(rules)).cost()
            rows.append({
                "graph": spec, "nodes": len(graph), "rules": rules, "fast_words": m, "heuristic": cost,
                "compulsory": compulsory(graph), "seconds": round(seconds, 3),
            })  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def recomputation_table(rows: Sequence[Recomputation]) -> str:
    """Return a Markdown table of optima without and with recomputation."""
    out = ["| graph | nodes | M | computed once | computed again | saved |", "|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        values = [str(s.cost) if s.proved else f"{s.lower_bound}..{s.cost}" for s in (row.once, row.again)]
        saved = str(row.once.cost - row.again.cost) if row.once.proved and row.again.proved else "open"
        out.append(f"| {row.graph} | {row.nodes} | {row.fast_words} | {values[0]} | {values[1]} | {saved} |")
    return "\n".join(out)


def bridge_page(rows: Sequence[Confrontation], again: Sequence[Recomputation]) -> str:
    """Return the page that publishes both comparisons."""
    proved = [row for row in rows if row.solution.proved]
    met = [row for row in proved if row.best_schedule is not None and row.best_schedule[1] == row.solution.cost]
    tight = [row for row in proved if max(words for _, words in row.bounds) == row.solution.cost]
    closed = [row for row in again if row.once.proved and row.again.proved]
    saves = [row for row in closed if row.again.cost < row.once.cost]
    where = "; ".join(f"{row.graph} at M = {row.fast_words}" for row in saves)
    return TEXT.format(
        cases=len(rows), proved=len(proved), tight=len(tight), met=len(met), table=confrontation_table(rows),
        closed=len(closed), saves=f"{len(saves)}: {where}" if saves else "none", again=recomputation_table(again),
    )  # fmt: skip


TEXT = """# Exact optima, schedules and lower bounds of tiny attention

Generated by `python benchmarks/pebble.py bridge`. Numbers are words moved, loads plus stores.

## One model for three kinds of numbers

The model is the pebble game with accumulators (rules `fma`): every word of Q, K, V, dO, O, dQ, dK, dV and one word
(forward) or two words (backward) a pair live in fast or slow memory; a multiply-add needs its three words in fast
memory; P overwrites S, dS overwrites dP; row statistics are free. The graphs are `attention:sum=word` and
`attention-backward:sum=word`.

* *optimum*: proved by the exact solver, its moves accepted by the referee; `a..b` where only that much is proved within
  the time limit.
* *schedules*: the run on the memory machine, lowered to moves and accepted by the referee at M red pebbles with exactly
  the words the machine counted. `two_pass` computes scores twice.
* *bounds*: every theorem that covers algorithms which form each score once.

Of {cases} cases {proved} are proved. No bound exceeds an optimum, and no schedule that forms each score once moves less
than one. The largest bound equals the optimum in {tight} cases; the best schedule does in {met}.

{table}

## What recomputation buys

The same graphs without accumulators (chains of sums), each value computed once (`no-recompute`) or as often as one
likes (`hong-kung`). Both are proved in {closed} cases; recomputation saves words in {saves}.

{again}
"""


def bridge() -> list[Row]:
    sizes = {
        ("forward", 2, 1): (3, 4, 5, 6, 8), ("forward", 2, 2): (3, 4, 5, 6, 8), ("forward", 3, 1): (3, 4, 5, 6, 8, 10),
        ("backward", 2, 1): (3, 4, 5, 6, 8, 10, 12), ("backward", 2, 2): (10, 16, 24),
    }  # fmt: skip
    rows = []
    for (direction, tokens, dim), memory in sizes.items():
        for mask in ("dense", "causal", *(["101/110/011"] if tokens == 3 else [])):
            for m in memory:
                case = Case(direction=direction, tokens=tokens, dim=dim, mask=mask, fast_words=m)  # type: ignore[arg-type]
                rows.append(confront(case, time_limit_s=4))
                print(case, rows[-1].solution.lower_bound, rows[-1].solution.cost, rows[-1].best_schedule, flush=True)
    again = [
        compare_recomputation(spec, m, time_limit_s=10)
        for spec, memory in (
            ("attention:tokens=2,dim=1", (4, 5, 6)),
            ("attention:tokens=2,dim=2", (5, 6, 7)),
            ("attention:tokens=2,dim=1,max=true", (5, 6)),
            ("matmul:m=2,k=3,n=2", (4, 5, 6)),
            ("attention-backward:tokens=2,dim=1,mask=causal", (4, 5, 6)),
            ("diamond:rows=4", (3, 4)),
            ("diamond:rows=5", (5,)),
            ("fft:points=8", (3, 4)),
        )
        for m in memory
    ]
    PAGE.write_text(bridge_page(rows, again), encoding="utf-8")
    return []


PIECES: dict[str, Callable[[], list[Row]]] = {
    piece.__name__: piece for piece in (attention, matmul, accumulators, gap, large, bridge)
}


def main() -> None:
    chosen = sys.argv[1:] or list(PIECES)
    unknown = set(chosen) - set(PIECES)
    if unknown:
        raise SystemExit(__doc__)
    for rules in ("no-recompute", "hong-kung", "fma"):
        solve(graph_for("matmul", rules), 4, named(rules), effort=0.0)
    for piece in chosen:
        rows = PIECES[piece]()
        if rows:
            kept = {name: value for name, value in stored("pebble").items() if name in PIECES}
            write_result("pebble", {**kept, piece: rows})


if __name__ == "__main__":
    main()
