"""How far the best schedule is from the best bound over the whole range of M, before and after the research bounds.

n = 16384, d = 128, dense. "Before" leaves out the bounds A', A*, D*, E* and the schedules merged_backward and
small_cache_raw of docs/theory/tightness.md. A ratio compares the best schedule of a class with the largest bound that
covers the class. Nothing is executed: counts are exact formulas, so this takes seconds.

Run: python benchmarks/tightness.py [--points 25]
"""

from __future__ import annotations

import argparse
from typing import Any, Literal

from results import write_result
from wattention.iocomplexity.bounds.base import AlgorithmClass
from wattention.iocomplexity.planning.planner import Plan, plan
from wattention.iocomplexity.problem.attention import Problem, attention_problem

NEW_BOUNDS = frozenset({"A'", "A*", "D*", "E*"})
NEW_SCHEDULES = frozenset({"merged_backward", "small_cache_raw"})
CLASSES = (AlgorithmClass.ONCE, AlgorithmClass.RECOMPUTE)
GOALS = {"forward": (1.2, 1.5), "backward": (1.4, 1.8)}
Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")


def cell(found: Plan, algorithm_class: AlgorithmClass, *, before: bool) -> dict[str, Any]:
    """Best schedule, active bound and their ratio for one class."""
    new = NEW_SCHEDULES if before else frozenset()
    best = next(p for p in found.ranked if algorithm_class.covers(p.algorithm_class) and p.name not in new)
    holding = found.bound(algorithm_class).holding
    active = next(h for h in holding if not before or h.bound.name not in NEW_BOUNDS)
    pairs = found.problem.pairs
    return {
        "schedule": best.name,
        "words_per_pair": best.words / pairs,
        "bound": active.bound.name,
        "bound_words_per_pair": active.words / pairs,
        "ratio": best.words / active.words,
    }


def row(problem: Problem, per_square: float) -> dict[str, Any]:
    """Both passes and classes at M = per_square d^2."""
    found: dict[str, Any] = {"m_per_d2": per_square}
    for direction in DIRECTIONS:
        planned = plan(problem, int(per_square * problem.key_dim**2), direction=direction)
        for algorithm_class in CLASSES:
            for before in (True, False):
                key = f"{direction} {algorithm_class.label} {'before' if before else 'after'}"
                found[key] = cell(planned, algorithm_class, before=before)
    return found


def print_table(rows: list[dict[str, Any]]) -> None:
    """One line per M: ratio before -> after, with the schedule and the bound after."""
    heads = [f"{d}, {c.label}" for d in DIRECTIONS for c in CLASSES]
    print("| M/d^2 | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    for r in rows:
        cells = [f"{r['m_per_d2']:.4g}"]
        for direction in DIRECTIONS:
            for c in CLASSES:
                old, new = (r[f"{direction} {c.label} {when}"] for when in ("before", "after"))
                cells.append(f"{old['ratio']:.2f} -> {new['ratio']:.2f} ({new['schedule']}, {new['bound']})")
        print("| " + " | ".join(cells) + " |")
    for direction in DIRECTIONS:
        for c, goal in zip(CLASSES, GOALS[direction], strict=True):
            worst = {
                when: max(rows, key=lambda r: r[f"{direction} {c.label} {when}"]["ratio"])
                for when in ("before", "after")
            }
            words = [
                f"{when} {r[f'{direction} {c.label} {when}']['ratio']:.3f} at {r['m_per_d2']:.4g} d^2"
                for when, r in worst.items()
            ]
            print(f"worst, {direction}, {c.label}: {', '.join(words)}; goal {goal}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=25, help="values of M between d^2/64 and 64 d^2, evenly in log M")
    arguments = parser.parse_args()
    problem = attention_problem(tokens=16384, head_dim=128)
    step = 12 / (arguments.points - 1)
    rows = [row(problem, 2.0 ** (-6 + step * k)) for k in range(arguments.points)]
    print_table(rows)
    write_result("tightness", {"points": arguments.points, "rows": rows})


if __name__ == "__main__":
    main()
