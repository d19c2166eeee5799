"""Good games for graphs of thousands of nodes: a search over orders, each played with furthest-next-use eviction.

An order of the steps fixes a game but for the evictions. When room is needed the victim is the word whose next use is
furthest away (Belady 1966, optimal for clean words), divided by what evicting it costs: a load for a clean word, a
store as well for a dirty one. Dead words leave at once, outputs are stored when complete, loads happen at the last
moment. Orders: the graph's own, a depth-first one, and orders grown by loading what enables most; then
simulated annealing moves single steps within the room their operands and readers leave. No value is computed twice.

The game is legal by construction, and checked by :func:`wattention.iocomplexity.pebble.verify.verify` all the same; its
cost is an upper bound on the optimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wattention.iocomplexity.pebble.bits import compiled
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.orders import Ints, Program, depth_first, grown, program
from wattention.iocomplexity.pebble.rules import Move, Rules, check_memory, named, steps_under

LOAD, STORE, DELETE, STEP, SLIDE = range(5)
NEVER = 1 << 40
_GROWN = 5000  # steps; growing an order takes time in proportion to their square


def pebble(
    graph: Graph, fast_words: int, rules: Rules, *, load_cost: int = 1, store_cost: int = 1,
    effort: float = 1.0, seed: int = 0,
) -> list[Move]:  # fmt: skip
    """Return a legal game of low cost; UserError if the fast memory cannot hold one step.

    Args:
        effort: how long to anneal; 1.0 is about half a second, 0 only compares the first orders.
        seed: of the annealing; the same arguments give the same game.
    """
    check_memory(graph, fast_words, rules)
    graph = graph.useful
    p = program(graph, rules)
    more = _whole_nodes(graph, fast_words) if rules.absorb == "operand" else []
    order = best_order(p, more, fast_words, rules.slides, load_cost, store_cost, effort, seed)
    _, events = _replay(p, order, fast_words, rules.slides, load_cost, store_cost)
    return _moves(graph, rules, events)


def best_order(
    p: Program, more: list[Ints], fast_words: int, slides: bool, load_cost: int, store_cost: int,
    effort: float, seed: int,
) -> Ints:  # fmt: skip
    """Return the best order of the program's steps that was found; ``more`` are orders to begin with."""
    steps = len(p.target)
    orders = [np.arange(steps, dtype=np.int64), depth_first(p), *more]
    if steps <= _GROWN:
        orders += [grown(p, room) for room in (max(2, fast_words // 2), fast_words)]
    costs = [_replay(p, order, fast_words, slides, load_cost, store_cost)[0] for order in orders]
    tries = int(effort * 2e7 / (steps * (fast_words + 4) + 50))
    best = orders[int(np.argmin(costs))]
    if tries < 1 or steps < 2:
        return best
    annealed: Ints = _anneal(
        best, tries, seed, fast_words, slides, load_cost, store_cost, p.target, p.read_start, p.read_item,
        p.before_start, p.before_item, p.after_start, p.after_item, p.is_output, p.steps_of_node,
    )  # fmt: skip
    return annealed


def _whole_nodes(graph: Graph, fast_words: int) -> list[Ints]:
    """Return orders in which the operands of a node are absorbed one right after the other."""
    p = program(graph, named("no-recompute"))
    if len(p.target) > _GROWN:
        return []
    return [
        np.concatenate([np.arange(p.read_start[k], p.read_start[k + 1]) for k in grown(p, room)])
        for room in (max(2, fast_words // 2), fast_words)
    ]


def _replay(
    p: Program, order: Ints, fast_words: int, slides: bool, load_cost: int, store_cost: int
) -> tuple[int, NDArray[np.int64]]:
    touches = len(p.read_item) + len(p.target)
    events = np.empty((3 * touches + 2 * len(p.target), 2), dtype=np.int64)  # load, store, delete; step, output
    cost, count = play(
        order, fast_words, slides, load_cost, store_cost, p.target, p.read_start, p.read_item, p.is_output,
        p.steps_of_node, events,
    )  # fmt: skip
    return int(cost), events[:count]


@compiled
def _victim(position, held, count, dirty, busy, upcoming, load_cost, store_cost, operands_too):  # type: ignore[no-untyped-def]
    """Return the red word that is cheapest to lose: the longest time to its next use for each word to be moved."""
    best, best_score = -1, -1.0
    for c in range(count):
        w = held[c]
        if busy[w] == position and not operands_too:
            continue
        price = load_cost + (store_cost if dirty[w] else 0)
        score = (min(upcoming[w], NEVER) - position) / max(price, 0.5)
        if upcoming[w] == NEVER:
            score = 1e18
        if score > best_score:
            best, best_score = w, score
    return best


@compiled
def _leave(w, place, held, count):  # type: ignore[no-untyped-def]
    """Take w out of fast memory; return how many words are left."""
    last = held[count - 1]
    held[place[w]] = last
    place[last] = place[w]
    place[w] = -1
    return count - 1


@compiled
def _note(events, logged, kind, what):  # type: ignore[no-untyped-def]
    if events.shape[0] > 0:
        events[logged, 0], events[logged, 1] = kind, what
    return logged + 1


@compiled
def _next_uses(order, target, read_start, read_item, upcoming):  # type: ignore[no-untyped-def]
    """Set each word's first use, and return for every (step, word) in order the word's next use after it."""
    slot = read_item.shape[0] + order.shape[0]
    following = np.empty(slot, np.int64)
    for position in range(order.shape[0] - 1, -1, -1):
        k = order[position]
        for r in range(read_start[k + 1], read_start[k] - 1, -1):
            w = target[k] if r == read_start[k + 1] else read_item[r]
            slot -= 1
            following[slot] = upcoming[w]
            upcoming[w] = position
    return following


@compiled
def play(order, room, slides, load_cost, store_cost, target, read_start, read_item, is_output, steps_of_node, events):  # type: ignore[no-untyped-def]
    """Play an order: return its cost and how many (event, word) rows it wrote into ``events`` (none if that is empty).

    A step row holds the step; a SLIDE row before it holds the operand that gives up its pebble.
    """
    words = is_output.shape[0]
    upcoming = np.full(words, NEVER)
    following = _next_uses(order, target, read_start, read_item, upcoming)
    place = np.full(words, -1)  # in `held`, or -1
    held = np.empty(room + 1, np.int64)
    busy = np.full(words, -1)  # the last position that uses the word
    dirty = np.zeros(words, np.bool_)
    left = steps_of_node.copy()
    count = cost = logged = slot = 0
    for position in range(order.shape[0]):
        k = order[position]
        t = target[k]
        first, end = read_start[k], read_start[k + 1]
        busy[t] = position
        for r in range(first, end):
            busy[read_item[r]] = position
        for r in range(first, end + 1):
            w = t if r == end else read_item[r]
            result = r == end and left[t] == steps_of_node[t]  # a new word: nothing to load
            if result:  # from here on the operands may go
                for q in range(first, end):
                    upcoming[read_item[q]] = following[slot + q - first]
            if place[w] >= 0:
                continue
            if count == room:
                v = _victim(position, held, count, dirty, busy, upcoming, load_cost, store_cost, slides and result)
                if dirty[v] and upcoming[v] != NEVER:
                    cost += store_cost
                    logged = _note(events, logged, STORE, v)
                dirty[v] = False
                logged = _note(events, logged, SLIDE if busy[v] == position else DELETE, v)
                count = _leave(v, place, held, count)
            if not result:
                cost += load_cost
                logged = _note(events, logged, LOAD, w)
            place[w] = count
            held[count] = w
            count += 1
        logged = _note(events, logged, STEP, k)
        dirty[t] = True
        left[t] -= 1
        if left[t] == 0 and is_output[t]:
            dirty[t] = False
            cost += store_cost
            logged = _note(events, logged, STORE, t)
        for r in range(first, end + 1):
            w = t if r == end else read_item[r]
            upcoming[w] = following[slot]
            slot += 1
            if upcoming[w] == NEVER and place[w] >= 0:
                logged = _note(events, logged, DELETE, w)
                count = _leave(w, place, held, count)
    return cost, logged


@compiled
def _anneal(  # type: ignore[no-untyped-def]
    first, tries, seed, room, slides, load_cost, store_cost, target, read_start, read_item,
    before_start, before_item, after_start, after_item, is_output, steps_of_node,
):  # fmt: skip
    """Move single steps within the window their neighbours leave; accept by the Metropolis rule."""
    np.random.seed(seed)
    steps = first.shape[0]
    silent = np.empty((0, 2), np.int64)
    order, best = first.copy(), first.copy()
    place = np.empty(steps, np.int64)
    cost, _ = play(order, room, slides, load_cost, store_cost, target, read_start, read_item, is_output,
                   steps_of_node, silent)  # fmt: skip
    best_cost = cost
    unit = max(load_cost, store_cost, 1)
    trial = order.copy()
    for attempt in range(tries):
        heat = unit * (0.02 + 1.2 * (1.0 - attempt / tries))
        for position in range(steps):
            place[order[position]] = position
        here = np.random.randint(steps)
        k = order[here]
        low, high = 0, steps - 1
        for b in range(before_start[k], before_start[k + 1]):
            low = max(low, place[before_item[b]] + 1)
        for a in range(after_start[k], after_start[k + 1]):
            high = min(high, place[after_item[a]] - 1)
        there = low + np.random.randint(high - low + 1)
        if there == here:
            continue
        trial[:] = order
        if there > here:
            trial[here:there] = order[here + 1 : there + 1]
        else:
            trial[there + 1 : here + 1] = order[there:here]
        trial[there] = k
        new_cost, _ = play(trial, room, slides, load_cost, store_cost, target, read_start, read_item, is_output,
                           steps_of_node, silent)  # fmt: skip
        if new_cost <= cost or np.random.random() < np.exp((cost - new_cost) / heat):
            order[:] = trial
            cost = new_cost
            if cost < best_cost:
                best[:] = order
                best_cost = cost
    return best


def _moves(graph: Graph, rules: Rules, events: NDArray[np.int64]) -> list[Move]:
    steps, names = steps_under(graph, rules), graph.nodes
    moves: list[Move] = []
    source = ""
    for event, what in events.tolist():
        if event == SLIDE:
            source = names[what]
        elif event == STEP:
            step = steps[what]
            if rules.absorb != "nothing":
                moves.append(Move("absorb", names[step.target], tuple(names[u] for u in step.operands)))
            elif source:
                moves.append(Move("slide", names[step.target], (source,)))
            else:
                moves.append(Move("compute", names[step.target]))
            source = ""
        else:
            kind = ("load", "store", "delete")
            moves.append(Move(kind[event], names[what]))  # type: ignore[arg-type]
    return moves
