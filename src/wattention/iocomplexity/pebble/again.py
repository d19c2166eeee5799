"""Exact search for games that may compute a node again: hong-kung and sliding.

A state is two sets: the red nodes and the blue ones. One move of the search is a macro move: one node is computed,
preceded by the evictions that make room, by stores of some of the evicted that are not blue, and by the loads of the
operands. Nothing is lost: loads and evictions can wait for the compute that needs them, and a store for the eviction
(or, for an output, not wait at all). Under sliding rules one evicted node may be an operand, whose pebble moves on.

Dropped at once: a red node from which no path leads to an output that is not stored, or whose one such way leads
through a red node; whoever keeps it instead of that node does better the other way round. Never kept, as in
:mod:`once`: dominated states (a kept blue node u, an evicted input w, and every node that still reads u reads w too),
unsettled states (a node can be computed now in the place of an operand that this drops and that was not blue, or of two
dropped operands, or is an output stored at once), and all but one state of each orbit under the automorphisms.

The lower bound: every output not stored costs a store. A node that must become red again, not being blue, must be
computed, so its operands must be red; an input that must become red, and is not, costs a load. A spilled node (blue,
not an input) that must become red costs at least a load if computing it again would need an input that nothing else
needs; every such input counts for one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from wattention.iocomplexity.pebble.bits import (
    BEAT,
    CLOCK,
    COUNT,
    DONE,
    FULL,
    GOAL,
    LIMIT,
    MANY,
    U0,
    U1,
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
from wattention.iocomplexity.pebble.graph import Graph
from wattention.iocomplexity.pebble.rules import Move, Rules
from wattention.iocomplexity.pebble.symmetry import automorphisms


@compiled
def live_nodes(blue, outputs, operands):  # type: ignore[no-untyped-def]
    """Return the nodes from which a path leads to an output that is not stored."""
    live = outputs & ~blue
    for v in range(operands.shape[0] - 1, -1, -1):
        if live & bit(v) != U0:
            live |= operands[v]
    return live


@compiled
def _superfluous(w, red, blue, live, outputs, readers):  # type: ignore[no-untyped-def]
    """Whether red w has no way to an unstored output, or only one and that through a red node."""
    if live & bit(w) == U0:
        return True
    x = w
    while outputs & ~blue & bit(x) == U0:
        after = readers[x] & live
        if size(after) != 1:
            return False
        if after & red != U0:
            return True
        x = size(after - U1)  # the one element
    return False


@compiled
def drop(red, blue, outputs, operands, readers):  # type: ignore[no-untyped-def]
    """Return the red nodes without the superfluous ones."""
    live = live_nodes(blue, outputs, operands)
    for w in range(operands.shape[0]):
        if red & bit(w) != U0 and _superfluous(w, red, blue, live, outputs, readers):
            red &= ~bit(w)
    return red


@compiled
def compute(v, red, blue, outputs, operands, readers):  # type: ignore[no-untyped-def]
    """Compute v, its operands being red (or just loaded): an output is stored, superfluous nodes go."""
    red |= operands[v] | bit(v)
    blue |= outputs & bit(v)
    return drop(red, blue, outputs, operands, readers), blue


@compiled
def settle(red, blue, room, slides, cheap_store, inputs, outputs, operands, readers, log):  # type: ignore[no-untyped-def]
    """Compute every node that is safe to compute now; return how many, written to ``log``, and the new state."""
    logged = 0
    again = True
    while again:
        again = False
        live = live_nodes(blue, outputs, operands)
        for v in range(operands.shape[0]):
            if (inputs | red) & bit(v) != U0 or live & bit(v) == U0 or operands[v] & ~red != U0:
                continue
            new_red, new_blue = compute(v, red, blue, outputs, operands, readers)
            gone = operands[v] & ~new_red
            if size(red) >= room and not (slides and gone != U0):
                continue
            stays = new_red & bit(v) != U0
            place = gone & ~blue != U0 or (gone != U0 and new_blue & bit(v) != U0)
            if readers[v] == U0 or (stays and (place or (size(gone) >= 2 and cheap_store))):
                red, blue = new_red, new_blue
                log[logged] = v
                logged += 1
                again = True
                break
    return logged, red, blue


@compiled
def bound(red, blue, load_cost, store_cost, inputs, outputs, operands):  # type: ignore[no-untyped-def]
    """Return a lower bound on the cost to finish."""
    forced = outputs & ~blue
    cost = size(forced) * store_cost
    lost = ~(red | blue)
    for v in range(operands.shape[0] - 1, -1, -1):
        if forced & lost & bit(v) != U0:
            forced |= operands[v]
    spoken_for = red | forced
    cost += size(forced & inputs & ~red) * load_cost
    spilled = forced & blue & ~red & ~inputs
    for u in range(operands.shape[0]):
        if spilled & bit(u) == U0:
            continue
        below = operands[u]
        for v in range(u - 1, -1, -1):
            if below & lost & bit(v) != U0:
                below |= operands[v]
        wanted = below & inputs & ~spoken_for
        if wanted != U0:
            spoken_for |= wanted & (~wanted + U1)
            cost += load_cost
    return cost


@compiled
def _room_needed(v, red, blue, room, slides, outputs, operands, readers):  # type: ignore[no-untyped-def]
    """Return how many nodes must go to compute v, and which may.

    Sliding saves one eviction if computing v drops an operand; else one of the evicted may be an operand.
    """
    full = red | operands[v] | bit(v)
    over = size(full) - room
    if over <= 0:
        return 0, U0
    if slides:
        if operands[v] & ~drop(full, blue | (outputs & bit(v)), outputs, operands, readers) == U0:
            return over, full & ~bit(v)
        over -= 1
    return over, red & ~operands[v]


@compiled
def _dominated(choice, candidates, victims, own, blue, live, inputs, readers):  # type: ignore[no-untyped-def]
    """Whether a kept blue node should have gone instead of an evicted input."""
    for c in range(candidates):
        u = victims[c]
        if (choice >> c) & 1 or (blue & ~own) & bit(u) == U0:
            continue
        left_u = readers[u] & live
        for e in range(candidates):
            w = victims[e]
            if not (choice >> e) & 1 or (inputs & ~own) & bit(w) == U0:
                continue
            left_w = readers[w] & live
            if left_u & ~left_w == U0 and (left_u != left_w or c < e or inputs & bit(u) == U0):
                return True
    return False


@compiled
def macro(v, out, saved, red, blue, room, slides, cheap_store, inputs, outputs, operands, readers, log):  # type: ignore[no-untyped-def]
    """Evict ``out``, storing ``saved`` of it, load, compute v, settle; return how many settled and the new state."""
    red, blue = compute(v, (red | operands[v]) & ~out, blue | saved, outputs, operands, readers)
    return settle(red & ~out, blue, room, slides, cheap_store, inputs, outputs, operands, readers, log)


@compiled
def _fanout(red, blue, room, slides, inputs, outputs, operands, readers):  # type: ignore[no-untyped-def]
    """Return an upper bound on the number of macro moves of a state."""
    count = 0
    for v in range(operands.shape[0]):
        if (inputs | red) & bit(v) == U0 and operands[v] & ~(red | blue) == U0:
            over, rest = _room_needed(v, red, blue, room, slides, outputs, operands, readers)
            stores = min(over, size(rest & ~blue))
            if stores > 20:
                return MANY
            count += choices(size(rest), over) << stores
    return count


@compiled
def search(  # type: ignore[no-untyped-def]  # noqa: PLR0912  one loop, compiled as a whole
    keys, cost, parents, after, heads, table, scalars, budget,
    room, slides, load_cost, store_cost, inputs, outputs, operands, readers, images,
):  # fmt: skip
    """Expand states until ``budget`` macro moves were tried; return DONE, FULL (room for a state's moves) or CLOCK."""
    log = np.empty(LIMIT, np.int64)
    victims = np.empty(LIMIT, np.int64)
    scratch = np.empty(images.shape[2], np.uint64)
    cheap = store_cost <= load_cost
    tried = 0
    while tried < budget:
        i = pop(cost, after, heads, scalars)
        if i < 0:
            return DONE
        blue, red = keys[i, 0], keys[i, 1]
        fanout = _fanout(red, blue, room, slides, inputs, outputs, operands, readers)
        if scalars[COUNT] + fanout > min(keys.shape[0], table.shape[0] // 2):
            put_back(i, fanout, cost, after, heads, scalars)
            return FULL
        tried += fanout
        paid = cost[i] - bound(red, blue, load_cost, store_cost, inputs, outputs, operands)
        live = live_nodes(blue, outputs, operands)
        for v in range(operands.shape[0]):
            own = operands[v]
            if (inputs | red | ~live) & bit(v) != U0 or own & ~(red | blue) != U0:
                continue
            over, rest = _room_needed(v, red, blue, room, slides, outputs, operands, readers)
            candidates = 0
            for w in range(operands.shape[0]):
                if rest & bit(w) != U0:
                    victims[candidates] = w
                    candidates += 1
            choice = np.int64(0) if over == 0 else (np.int64(1) << over) - 1
            while choice < (np.int64(1) << candidates) and over <= candidates:
                out = U0
                for c in range(candidates):
                    if (choice >> c) & 1:
                        out |= bit(victims[c])
                wrong = size(out & own) > 1 or _dominated(choice, candidates, victims, own, blue, live, inputs, readers)
                saved = out & ~blue
                while not wrong:  # every subset of the evicted nodes that are not blue
                    _, a, b = macro(
                        v, out, saved, red, blue, room, slides, cheap, inputs, outputs, operands, readers, log
                    )
                    g = paid + size(own & ~red) * load_cost + size(b & ~blue) * store_cost
                    total = g + bound(a, b, load_cost, store_cost, inputs, outputs, operands)
                    if total < scalars[BEAT]:
                        end = outputs & ~b == U0
                        if not end:
                            b, a, _ = smallest(b, a, U0, images, images, scratch)
                        push(b, U0 if end else a, U0, total, i, keys, cost, parents, after, heads, table, scalars)
                        if end:
                            scalars[BEAT] = total
                            scalars[GOAL] = scalars[COUNT] - 1
                    if saved == U0:
                        break
                    saved = (saved - U1) & (out & ~blue)
                if over == 0:
                    break
                choice = next_choice(choice)
    return CLOCK


@dataclass(frozen=True, kw_only=True)
class AgainGame:
    """One game as bit sets. Priorities are costs, so nothing is ``paid`` in advance."""

    graph: Graph
    rules: Rules
    room: int
    load_cost: int
    store_cost: int
    structure: tuple[np.uint64, np.uint64, Words, Words]  # inputs, outputs, operands, readers
    images: Words
    paid: int = 0

    @classmethod
    def of(cls, graph: Graph, rules: Rules, room: int, load_cost: int, store_cost: int, orbits: int) -> AgainGame:
        """Return the game; the graph's nodes all lead to outputs, and it has at most 64 of them."""
        inputs, outputs = to_bits([sorted(graph.inputs), sorted(graph.outputs)])
        readers = to_bits([[graph.steps[k].target for k in row] for row in graph.readers])
        operands = to_bits([list(row) for row in graph.operands])
        images, _ = automorphisms(len(graph), graph.steps, graph.outputs, limit=orbits)
        return cls(
            graph=graph, rules=rules, room=room, load_cost=load_cost, store_cost=store_cost,
            structure=(inputs, outputs, operands, readers), images=image_table(images),
        )  # fmt: skip

    def begin(self, states: States) -> None:
        """Enter the start: inputs blue, nothing red."""
        inputs, outputs, operands, _ = self.structure
        first = bound(U0, inputs, self.load_cost, self.store_cost, inputs, outputs, operands)
        if first < states.beat:
            push(inputs, U0, U0, first, -1, *states.arrays)

    def run(self, states: States, budget: int) -> int:
        """Search on; see :func:`search`."""
        return int(search(
            *states.arrays, budget, self.room, self.rules.slides, self.load_cost, self.store_cost, *self.structure,
            self.images,
        ))  # fmt: skip

    def moves(self, path: list[tuple[int, int, int]]) -> list[Move]:
        """Return the move list of a path of states, each known only up to an automorphism."""
        moves: list[Move] = []
        blue, red, _ = path[0]
        for wanted in path[1:]:
            _, v, out, saved, settled, after = min(self._ways(red, blue, wanted))
            self._write(moves, red, blue, out, saved, [v, *settled])
            red, blue = after
        return moves

    def _ways(
        self, red: int, blue: int, wanted: tuple[int, int, int]
    ) -> Iterator[tuple[int, int, int, int, list[int], tuple[int, int]]]:
        """Yield the macro moves to a state in the orbit of another: cost, node, victims, stored, settled, state."""
        inputs, outputs, operands, readers = self.structure
        log = np.empty(LIMIT, dtype=np.int64)
        scratch = np.empty(self.images.shape[2], dtype=np.uint64)
        state = np.uint64(red), np.uint64(blue)
        limits = self.room, self.rules.slides
        ends = int(outputs) & ~wanted[0] == 0  # the goal is kept as it was found, not as the smallest of its orbit
        for v in range(len(self.graph)):
            own = int(operands[v])
            if (int(inputs) | red) >> v & 1 or own & ~(red | blue):
                continue
            over, rest = _room_needed(v, *state, *limits, outputs, operands, readers)
            for victims in combinations(from_bits(int(rest)), over):
                out = sum(1 << w for w in victims)
                if (out & own).bit_count() > 1:
                    continue
                unsaved = from_bits(out & ~blue)
                for count in range(len(unsaved) + 1):
                    for stored in combinations(unsaved, count):
                        saved = sum(1 << w for w in stored)
                        cheap = self.store_cost <= self.load_cost
                        settled, a, b = macro(
                            v, np.uint64(out), np.uint64(saved), *state, *limits, cheap, *self.structure, log
                        )
                        end = int(outputs) & ~int(b) == 0
                        image = smallest(np.uint64(b), np.uint64(a), U0, self.images, self.images, scratch)
                        if ends if end else tuple(map(int, image)) == wanted:
                            cost = (own & ~red).bit_count() * self.load_cost
                            cost += (int(b) & ~blue).bit_count() * self.store_cost
                            yield cost, v, out, saved, list(map(int, log[:settled])), (int(a), int(b))

    def _write(self, moves: list[Move], red: int, blue: int, out: int, saved: int, order: list[int]) -> None:
        """Write the single moves of one macro move."""
        names = self.graph.nodes
        _, outputs, operands, readers = self.structure
        own = int(operands[order[0]])
        slid = out & own
        for w in from_bits(out):
            moves += [Move("store", names[w])] if saved >> w & 1 else []
            moves += [] if slid >> w & 1 else [Move("delete", names[w])]
        moves += [Move("load", names[w]) for w in from_bits(own & ~red)]
        red, blue = (red | own) & ~(out & ~slid), blue | saved
        for v in order:
            a, b = compute(v, np.uint64(red & ~slid), np.uint64(blue), outputs, operands, readers)
            after = int(a) & ~slid
            gone = from_bits((red | 1 << v) & ~after)
            source = next((w for w in gone if int(operands[v]) >> w & 1 and red >> w & 1), None)
            if (red | 1 << v).bit_count() > self.room and source is not None:
                source = from_bits(slid)[0] if slid else source
                moves.append(Move("slide", names[v], (names[source],)))
                gone.remove(source)
            else:
                moves.append(Move("compute", names[v]))
            if int(b) & ~blue & 1 << v:
                moves.append(Move("store", names[v]))
            moves += [Move("delete", names[w]) for w in gone]
            red, blue, slid = after, int(b), 0
        assert red.bit_count() <= self.room
