"""Exact search for games without recomputation, where every step is done once: no-recompute, prbp, fma.

A state is three sets: the steps done, the red words, and the dirty ones among them (whose value is not in slow memory).
What a legal game must move anyway (each input loaded once, each output stored once) is paid in advance; what a game
costs beyond that is its waste, and only evictions waste: a clean word that is still needed must be loaded again, a
dirty one stored as well. So this is A* on waste.

One move of the search is a macro move: one step, preceded by the evictions that make room (as many as needed, never
words of the step) and by the loads it needs. Nothing is lost: loads can wait for the first use, evictions for the need
of room, stores for the eviction; outputs are stored when complete and dead words (no step left that touches them) are
dropped at once. Three kinds of states are never kept:

dominated: a clean word u stayed and a word w went although every step left for u needs w too. Evicting u instead is no
  worse: w must be back whenever u is used, and u can be loaded when the other game loads w.
unsettled: a step can be done now that takes no room afterwards and spoils no clean word. Its accumulator is red and
  dirty; or an operand that is dirty and used for the last time gives its place to the result; or two operands do; or
  the result is stored at once. Any other continuation can be imitated with the result in the operand's place.
symmetric: of each orbit under the automorphisms of the graph one state is kept.

The lower bound on the waste to come is the cheapest eviction that any next step forces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from wattention.iocomplexity.pebble.bits import (
    BEAT,
    CLOCK,
    COUNT,
    DONE,
    FULL,
    GOAL,
    LIMIT,
    U0,
    States,
    Words,
    bit,
    choices,
    compiled,
    from_bits,
    image_table,
    next_choice,
    pop,
    push,
    put_back,
    size,
    smallest,
    to_bits,
)
from wattention.iocomplexity.pebble.graph import Graph, compulsory
from wattention.iocomplexity.pebble.rules import Move, Rules, steps_under
from wattention.iocomplexity.pebble.symmetry import automorphisms


@compiled
def do_step(k, done, red, dirty, read, target, reads, writes, outputs):  # type: ignore[no-untyped-def]
    """Do step k, its operands being red: the result is red and dirty, an output is stored, dead words go."""
    touched = read[k] | bit(target[k])
    done |= bit(k)
    red |= touched
    dirty |= bit(target[k])
    if outputs & bit(target[k]) != U0 and writes[target[k]] & ~done == U0:
        dirty &= ~bit(target[k])
    for w in range(reads.shape[0]):
        if touched & bit(w) != U0 and (reads[w] | writes[w]) & ~done == U0:
            red &= ~bit(w)
            dirty &= ~bit(w)
    return done, red, dirty


@compiled
def _safe(k, done, red, dirty, room, cheap_store, read, target, reads, writes, outputs):  # type: ignore[no-untyped-def]
    """Whether doing step k now is no worse than doing it later; its operands are red and complete."""
    t = target[k]
    if writes[t] & done != U0:
        return dirty & bit(t) != U0
    if size(red) >= room:
        return False
    if writes[t] & ~done == bit(k) and outputs & bit(t) != U0 and reads[t] == U0:
        return True
    dying = 0
    for w in range(reads.shape[0]):
        if read[k] & bit(w) != U0 and reads[w] & ~done == bit(k):
            dying += 1
            if dirty & bit(w) != U0:
                return True
    return dying >= 2 and cheap_store


@compiled
def settle(done, red, dirty, room, cheap_store, need, read, target, reads, writes, outputs, log):  # type: ignore[no-untyped-def]
    """Do all safe steps; return how many, written to ``log``, and the new state."""
    logged = 0
    again = True
    while again:
        again = False
        for k in range(read.shape[0]):
            if done & bit(k) != U0 or need[k] & ~done != U0 or read[k] & ~red != U0:
                continue
            if _safe(k, done, red, dirty, room, cheap_store, read, target, reads, writes, outputs):
                done, red, dirty = do_step(k, done, red, dirty, read, target, reads, writes, outputs)
                log[logged] = k
                logged += 1
                again = True
    return logged, done, red, dirty


@compiled
def _waste_ahead(done, red, dirty, room, load_cost, store_cost, need, read, target):  # type: ignore[no-untyped-def]
    """Return the least that the evictions for the next step cost, over all steps that may come next."""
    least = np.int64(1 << 30)
    for k in range(read.shape[0]):
        if done & bit(k) != U0 or need[k] & ~done != U0:
            continue
        own = read[k] | bit(target[k])
        over = size(red | own) - room
        if over <= 0:
            return np.int64(0)
        clean = size(red & ~own & ~dirty)
        least = min(least, over * load_cost + max(0, over - clean) * store_cost)
    return least


@compiled
def _dominated(choice, candidates, victims, dirty, done, reads, writes):  # type: ignore[no-untyped-def]
    """Whether a kept clean word should have gone instead of an evicted one."""
    for c in range(candidates):
        u = victims[c]
        if (choice >> c) & 1 or dirty & bit(u) != U0:
            continue
        left_u = (reads[u] | writes[u]) & ~done
        for e in range(candidates):
            w = victims[e]
            if not (choice >> e) & 1:
                continue
            left_w = (reads[w] | writes[w]) & ~done
            if left_u & ~left_w == U0 and (left_u != left_w or dirty & bit(w) != U0 or c < e):
                return True
    return False


@compiled
def _fanout(done, red, room, need, read, target):  # type: ignore[no-untyped-def]
    """Return the number of macro moves of a state."""
    out = 0
    for k in range(read.shape[0]):
        if done & bit(k) == U0 and need[k] & ~done == U0:
            own = read[k] | bit(target[k])
            out += choices(size(red & ~own), max(0, size(red | own) - room))
    return out


@compiled
def search(  # type: ignore[no-untyped-def]  # noqa: PLR0912  one loop, compiled as a whole
    keys, cost, parents, after, heads, table, scalars, budget,
    room, load_cost, store_cost, goal, need, read, target, reads, writes, outputs, step_table, word_table,
):  # fmt: skip
    """Expand states until ``budget`` macro moves were tried; return DONE, FULL (room for a state's moves) or CLOCK."""
    log = np.empty(LIMIT, np.int64)
    victims = np.empty(LIMIT, np.int64)
    scratch = np.empty(word_table.shape[2], np.uint64)
    cheap_store = store_cost <= load_cost
    tried = 0
    while tried < budget:
        i = pop(cost, after, heads, scalars)
        if i < 0:
            return DONE
        done, red, dirty = keys[i, 0], keys[i, 1], keys[i, 2]
        fanout = _fanout(done, red, room, need, read, target)
        if scalars[COUNT] + fanout > min(keys.shape[0], table.shape[0] // 2):
            put_back(i, fanout, cost, after, heads, scalars)
            return FULL
        tried += fanout
        waste = cost[i] - _waste_ahead(done, red, dirty, room, load_cost, store_cost, need, read, target)
        for k in range(read.shape[0]):
            if done & bit(k) != U0 or need[k] & ~done != U0:
                continue
            own = read[k] | bit(target[k])
            over = max(0, size(red | own) - room)
            candidates = 0
            for w in range(reads.shape[0]):
                if red & ~own & bit(w) != U0:
                    victims[candidates] = w
                    candidates += 1
            choice = np.int64(0) if over == 0 else (np.int64(1) << over) - 1
            while choice < (np.int64(1) << candidates) and over <= candidates:
                spent = waste
                out = U0
                for c in range(candidates):
                    if (choice >> c) & 1:
                        out |= bit(victims[c])
                        spent += load_cost + (store_cost if dirty & bit(victims[c]) != U0 else 0)
                if spent < scalars[BEAT] and not _dominated(choice, candidates, victims, dirty, done, reads, writes):
                    a, b, c_ = do_step(k, done, red & ~out, dirty & ~out, read, target, reads, writes, outputs)
                    _, a, b, c_ = settle(a, b, c_, room, cheap_store, need, read, target, reads, writes, outputs, log)
                    if a == goal:
                        push(a, U0, U0, spent, i, keys, cost, parents, after, heads, table, scalars)
                        scalars[BEAT] = spent
                        scalars[GOAL] = scalars[COUNT] - 1
                    else:
                        total = spent + _waste_ahead(a, b, c_, room, load_cost, store_cost, need, read, target)
                        if total < scalars[BEAT]:
                            a, b, c_ = smallest(a, b, c_, step_table, word_table, scratch)
                            push(a, b, c_, total, i, keys, cost, parents, after, heads, table, scalars)
                if over == 0:
                    break
                choice = next_choice(choice)
    return CLOCK


@dataclass(frozen=True, kw_only=True)
class OnceGame:
    """One game as bit sets. ``paid`` is the cost that no legal game avoids; priorities are waste."""

    graph: Graph
    rules: Rules
    room: int
    load_cost: int
    store_cost: int
    paid: int
    need: Words
    structure: tuple[Any, ...]  # read, target, reads, writes, outputs
    step_table: Words
    word_table: Words

    @classmethod
    def of(cls, graph: Graph, rules: Rules, room: int, load_cost: int, store_cost: int, orbits: int) -> OnceGame:
        """Return the game; the graph's nodes all lead to outputs, and it has at most 64 nodes and 64 steps."""
        steps = steps_under(graph, rules)
        own: list[list[int]] = [[] for _ in graph.nodes]
        readers: list[list[int]] = [[] for _ in graph.nodes]
        for k, step in enumerate(steps):
            own[step.target].append(k)
            for u in step.operands:
                readers[u].append(k)
        need = [
            [j for u in step.operands for j in own[u]] + ([j for j in own[step.target] if j != k] if step.last else [])
            for k, step in enumerate(steps)
        ]
        images, step_images = automorphisms(len(graph), steps, graph.outputs, limit=orbits)
        read = to_bits([list(step.operands) for step in steps])
        target = np.array([step.target for step in steps], dtype=np.int64)
        outputs = to_bits([sorted(graph.outputs)])[0]
        return cls(
            graph=graph, rules=rules, room=room, load_cost=load_cost, store_cost=store_cost,
            paid=compulsory(graph, load_cost, store_cost),
            need=to_bits(need), structure=(read, target, to_bits(readers), to_bits(own), outputs),
            step_table=image_table(step_images), word_table=image_table(images),
        )  # fmt: skip

    @property
    def goal(self) -> np.uint64:
        """All steps done."""
        return np.uint64((1 << len(self.need)) - 1)

    def begin(self, states: States) -> None:
        """Enter the empty memory as the first state."""
        push(U0, U0, U0, 0, -1, *states.arrays)

    def run(self, states: States, budget: int) -> int:
        """Search on; see :func:`search`."""
        return int(search(
            *states.arrays, budget, self.room, self.load_cost, self.store_cost, self.goal, self.need, *self.structure,
            self.step_table, self.word_table,
        ))  # fmt: skip

    def moves(self, path: list[tuple[int, int, int]]) -> list[Move]:
        """Return the move list of a path of states, each known only up to an automorphism."""
        moves: list[Move] = []
        state = path[0]
        for wanted in path[1:]:
            _, out, order, after = min(self._ways(state, wanted))
            self._write(moves, state, out, order)
            state = after
        return moves

    def _ways(
        self, state: tuple[int, int, int], wanted: tuple[int, int, int]
    ) -> Iterator[tuple[int, int, list[int], tuple[int, int, int]]]:
        """Yield the macro moves from a state to one in the orbit of another: waste, victims, steps, state."""
        done, red, dirty = state
        read, target = self.structure[0], self.structure[1]
        log = np.empty(LIMIT, dtype=np.int64)
        scratch = np.empty(self.word_table.shape[2], dtype=np.uint64)
        for k in range(len(self.need)):
            own = int(read[k]) | 1 << int(target[k])
            if done >> k & 1 or int(self.need[k]) & ~done:
                continue
            over = max(0, (red | own).bit_count() - self.room)
            for victims in combinations(from_bits(red & ~own), over):
                out = sum(1 << w for w in victims)
                waste = over * self.load_cost + (out & dirty).bit_count() * self.store_cost
                kept = np.uint64(done), np.uint64(red & ~out), np.uint64(dirty & ~out)
                after = do_step(k, *kept, *self.structure)
                count, *after = settle(
                    *map(np.uint64, after),
                    self.room,
                    self.store_cost <= self.load_cost,
                    self.need,
                    *self.structure,
                    log,
                )
                image = smallest(*map(np.uint64, after), self.step_table, self.word_table, scratch)
                if after[0] == self.goal == wanted[0] or tuple(map(int, image)) == wanted:
                    yield waste, out, [k, *map(int, log[:count])], (int(after[0]), int(after[1]), int(after[2]))

    def _write(self, moves: list[Move], state: tuple[int, int, int], out: int, order: list[int]) -> None:
        """Write the single moves of one macro move."""
        done, red, dirty = state
        names, steps = self.graph.nodes, steps_under(self.graph, self.rules)
        reads, writes, outputs = self.structure[2], self.structure[3], int(self.structure[4])
        for w in from_bits(out):
            moves += [Move("store", names[w])] if dirty >> w & 1 else []
            moves.append(Move("delete", names[w]))
        red &= ~out
        for k in order:
            step = steps[k]
            begun = int(writes[step.target]) & done
            moves += [Move("load", names[w]) for w in (*step.operands, *([step.target] if begun else []))
                      if not red >> w & 1]  # fmt: skip
            moves.append(
                Move("compute", names[step.target]) if self.rules.absorb == "nothing"
                else Move("absorb", names[step.target], tuple(names[u] for u in step.operands))
            )  # fmt: skip
            done |= 1 << k
            red |= int(self.structure[0][k]) | 1 << step.target
            if not int(writes[step.target]) & ~done and outputs >> step.target & 1:
                moves.append(Move("store", names[step.target]))
            for w in {*step.operands, step.target}:
                if not (int(reads[w]) | int(writes[w])) & ~done:
                    red &= ~(1 << w)
                    moves.append(Move("delete", names[w]))
