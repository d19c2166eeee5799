"""Two independent ways to the optimum of a tiny game: shortest path over single moves, and a CP-SAT model of stages."""

from __future__ import annotations

import heapq

from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.rules import Rules, steps_under


def shortest_path(  # noqa: PLR0912  one branch a rule
    graph: Graph, fast_words: int, rules: Rules, load_cost: int = 1, store_cost: int = 1
) -> int:
    """Dijkstra over every single move: no macro moves, no dominance, no symmetry."""
    steps = steps_under(graph, rules)
    own = [{k for k, step in enumerate(steps) if step.target == v} for v in range(len(graph))]
    start = (frozenset[int](), graph.inputs, frozenset[int]())
    best = {start: 0}
    heap = [(0, 0, start)]
    count = 0
    while heap:
        cost, _, state = heapq.heappop(heap)
        if cost > best[state]:
            continue
        red, blue, done = state
        if graph.outputs <= blue and (rules.absorb == "nothing" or all(own[v] <= done for v in graph.outputs)):
            return cost
        after = [(cost + load_cost, (red | {v}, blue, done)) for v in blue - red]
        for v in red:
            after.append((cost, (red - {v}, blue, done)))
            if v not in blue:
                after.append((cost + store_cost, (red, blue | {v}, done)))
        for k, step in enumerate(steps):
            if not set(step.operands) <= red:
                continue
            t = step.target
            if rules.absorb != "nothing":
                others = own[t] - {k}
                if k in done or not all(own[u] <= done for u in step.operands) or (step.last and not others <= done):
                    continue
                if own[t] & done and t not in red:
                    continue
                after.append((cost, (red | {t}, blue - {t}, done | {k})))
            elif rules.recompute or k not in done:
                remember = done if rules.recompute else done | {k}
                after.append((cost, (red | {t}, blue, remember)))
                if rules.slides:
                    after += [(cost, ((red - {u}) | {t}, blue, remember)) for u in step.operands]
        for price, new in after:
            if len(new[0]) <= fast_words and price < best.get(new, 1 << 60):
                best[new] = price
                count += 1
                heapq.heappush(heap, (price, count, new))
    raise AssertionError("no game ends")


def cp_sat(  # noqa: PLR0912  one branch a constraint
    graph: Graph, fast_words: int, rules: Rules, spare_stages: int = 0
) -> int:
    """One step a stage: which words are in fast memory during it, which were loaded before, which stored after."""
    from ortools.sat.python import cp_model

    steps = steps_under(graph, rules)
    model = cp_model.CpModel()
    stages, words = range(len(steps) + spare_stages), range(len(graph))
    boolean = model.new_bool_var
    does = [[boolean(f"x{k},{s}") for s in stages] for k in range(len(steps))]
    red, load, store, blue = (
        [[boolean(f"{name}{w},{s}") for s in stages] for w in words] for name in ("red", "load", "store", "blue")
    )
    for s in stages:
        model.add(sum(row[s] for row in does) <= 1)
        model.add(sum(red[w][s] for w in words) <= fast_words)
    for k in range(len(steps)):
        if not rules.recompute:
            model.add(sum(does[k]) == 1)
    for w in words:
        writes = [k for k, step in enumerate(steps) if step.target == w]
        for s in stages:
            made = sum(does[k][s] for k in writes)
            was_red = red[w][s - 1] if s else 0
            was_blue = blue[w][s - 1] if s else int(w in graph.inputs)
            begun = sum(does[k][t] for k in writes for t in range(s))
            if rules.absorb == "nothing":
                model.add(red[w][s] <= was_red + load[w][s] + made)
            else:  # a begun accumulator must be there; only an untouched one is made
                first = boolean(f"first{w},{s}")
                model.add(first <= made)
                model.add(begun == 0).only_enforce_if(first)
                model.add(red[w][s] <= was_red + load[w][s] + first)
            model.add(load[w][s] <= was_blue)
            model.add(store[w][s] <= red[w][s])
            stale = made if rules.absorb != "nothing" else 0
            model.add(blue[w][s] <= was_blue + store[w][s])
            model.add(blue[w][s] <= 1 - stale + store[w][s])
        if w in graph.outputs and writes:
            model.add(blue[w][stages[-1]] == 1)
    for k, step in enumerate(steps):
        for s in stages:
            for u in (*step.operands, step.target):
                model.add(red[u][s] == 1).only_enforce_if(does[k][s])
            if not rules.recompute:
                earlier = {j for j, other in enumerate(steps) if other.target in step.operands}
                earlier |= {j for j, other in enumerate(steps) if step.last and other.target == step.target and j != k}
                for j in earlier:
                    model.add(sum(does[j][:s]) >= does[k][s])
            else:
                for u in step.operands:
                    model.add(red[u][s] == 1).only_enforce_if(does[k][s])
    if rules.recompute:  # a stage's result is not an operand made in the same stage: operands were red or loaded
        for k, step in enumerate(steps):
            for s in stages:
                for u in step.operands:
                    model.add((red[u][s - 1] if s else 0) + load[u][s] >= 1).only_enforce_if(does[k][s])
    model.minimize(sum(load[w][s] + store[w][s] for w in words for s in stages))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 30
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)
