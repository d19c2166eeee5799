"""Answers of the pebble game as text: one solution, and the confrontation of optima, schedules and bounds."""

from __future__ import annotations

from collections.abc import Sequence

from wattention.iocomplexity.pebble.bridge import Confrontation
from wattention.iocomplexity.pebble.exact import Solution
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.rules import Rules

_WHY = {
    "time": "the time limit came first",
    "memory": "the memory limit came first",
    "size": "the graph is too large for the exact search (64 nodes, 64 steps)",
}


def solution_text(graph: Graph, solution: Solution, fast_words: int, rules: Rules) -> str:
    """Return the answer in a few lines."""
    lines = [
        f"{graph.name}: {len(graph)} nodes, M = {fast_words}, rules {rules.name} ({rules.what})",
        f"{'optimum' if solution.proved else 'best game found'}: {solution.cost} "
        f"({solution.loads} loads, {solution.stores} stores, {len(solution.moves)} moves)",
    ]
    if solution.proved:
        lines.append("proved: no legal game costs less")
    else:
        lines.append(f"proved lower bound: {solution.lower_bound}; not more, because {_WHY[solution.stopped]}")
    lines.append(f"search: {solution.states} states, {solution.seconds:.2f} s")
    return "\n".join(lines)


def confrontation_table(rows: Sequence[Confrontation]) -> str:
    """Return a Markdown table, one line a case: optimum, schedules, bounds."""
    out = [
        "| pass | tokens | dim | mask | M | optimum | best schedule | next schedules | largest bounds |",
        "|---|---:|---:|---|---:|---:|---|---|---|",
    ]
    for row in rows:
        case, solution = row.case, row.solution
        optimum = str(solution.cost) if solution.proved else f"{solution.lower_bound}..{solution.cost}"
        best = row.best_schedule
        following = ", ".join(f"{name} {words}" for name, words in row.schedules[1:4])
        bounds = ", ".join(f"{name} {words:.4g}" for name, words in row.bounds if words > 0)
        out.append(
            f"| {case.direction} | {case.tokens} | {case.dim} | {case.mask} | {case.fast_words} | {optimum} | "
            f"{'none fits' if best is None else f'{best[0]} {best[1]}'} | {following} | {bounds} |"
        )
    return "\n".join(out)
