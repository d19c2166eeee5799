"""From a schedule to a pebbling: one run at tiny size, as moves on the words of its computational graph.

Words are named as in accumulator graphs of attention: Q, K, V, dO are inputs; S_ij is one word that begins as a sum of
q_ia k_ja and is used as P_ij (forward); P_ij and dS_ij are the two words of a pair (backward), dS_ij beginning as
dP_ij; O, dQ,
dK and dV are sums. Every multiply-add is a step "target += product of two operands"; row statistics are free and
leave no
trace, and dS_ij *= P_ij is the last step of dS_ij. Names run indices together: S at (1, 0) is S10, at (1, 12) it is
S1_12.

The moves are those of the run: loads, stores and deletions of the machine, and one "absorb" for every step.
Source: red-blue pebbling with partial computation, Papp, Sobczyk and Yzelman (arXiv 2506.10854).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from wattention.core.errors import UnsupportedError, UserError
from wattention.iocomplexity.execution.execute import execute
from wattention.iocomplexity.memory.observer import Streams, Sums
from wattention.iocomplexity.memory.selection import Tags
from wattention.iocomplexity.memory.slow import SlowArray
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.masks import Bools
from wattention.iocomplexity.problem.widths import Widths
from wattention.iocomplexity.schedules.base import Schedule, Tiles

Label = tuple[str, int, int]

# (left, right) -> the sum they belong to, and which index of left and right makes its row and column
_FORWARD = {("Q", "K"): ("S", 0, 0), ("S", "V"): ("O", 0, 1)}
_BACKWARD = {
    ("Q", "K"): ("P", 0, 0),
    ("dO", "V"): ("dS", 0, 0),
    ("P", "dO"): ("dV", 1, 1),
    ("dS", "K"): ("dQ", 0, 1),
    ("dS", "Q"): ("dK", 1, 1),
}
_OUTPUTS = {"forward": ("O",), "backward": ("dQ", "dK", "dV")}
_NOTHING = -1


@dataclass(frozen=True, slots=True)
class LoweredMove:
    """One move: load, store, delete or absorb, the word, and what an absorb takes in."""

    kind: str
    node: str
    operands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredStep:
    """One operation on an accumulator word; ``last`` waits for the word's other steps."""

    target: str
    operands: tuple[str, ...]
    last: bool = False


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """The graph of a run and the run as a game on it."""

    nodes: tuple[str, ...]
    steps: tuple[LoweredStep, ...]
    outputs: tuple[str, ...]
    moves: tuple[LoweredMove, ...]

    @property
    def words(self) -> int:
        """Loads and stores."""
        return sum(move.kind in {"load", "store"} for move in self.moves)


def lower(schedule: Schedule, problem: Problem, fast_words: int, *, tiles: Tiles | None = None) -> Lowered:
    """Run a schedule and return its graph and its moves, for one copy of a problem.

    Raises:
        UserError: widths other than 1.
        UnsupportedError: a schedule of another form, one that starts from saved scores, or one that adds in slow
        memory.
    """
    if problem.widths != Widths():
        raise UserError("a pebbling needs words of one width", got=problem.widths, wanted="all widths 1")
    facts = schedule.facts
    if schedule.form != "attention" or facts.starts_from != "nothing" or facts.remote_adds:
        raise UnsupportedError(
            f"the schedule {schedule.name} is no game on the graph of attention",
            got=f"form {schedule.form}, starts from {facts.starts_from}, remote adds {facts.remote_adds}",
            do="choose a schedule that computes attention from Q, K and V in fast memory",
        )
    labels = _Labels(_FORWARD if schedule.direction == "forward" else _BACKWARD)
    execute(schedule, problem, fast_words, tiles=tiles, numbers=False, observer=labels)
    return labels.lowered(_OUTPUTS[schedule.direction])


def name_of(label: Label) -> str:
    """The name of a word."""
    letter, i, j = label
    return letter + ("" if max(i, j) < 10 else "_").join((str(i), str(j)))


class _Labels:
    """Observer whose tags are numbers of words; the label of a word is known once a product reaches it."""

    def __init__(self, rules: dict[tuple[str, str], tuple[str, int, int]]) -> None:
        self._rules, self._ids = rules, count()
        self._labels: dict[int, Label] = {}
        self._moves: list[LoweredMove] = []
        self._steps: dict[LoweredStep, None] = {}
        self._inputs = {letter for pair in rules for letter in pair} - {target for target, _, _ in rules.values()}

    def placed(self, array: SlowArray) -> Tags:
        tags = np.full(array.shape, _NOTHING, dtype=np.int64)
        if array.name in self._inputs:
            for i, j in np.ndindex(array.shape):
                tags[i, j] = self._word((array.name, i, j))
        return tags

    def loaded(self, tags: Tags, where: Bools | None) -> Tags:
        if where is None:
            self._move("load", tags)
            return np.array(tags)
        self._move("load", tags[where])
        return np.where(where, tags, self.created(tags.shape, "accumulators"))

    def created(self, shape: tuple[int, int], role: str) -> Tags:
        if role == "statistics":
            return np.full(shape, _NOTHING, dtype=np.int64)
        return np.array([next(self._ids) for _ in range(shape[0] * shape[1])], dtype=np.int64).reshape(shape)

    def stored(self, tags: Tags, home: Tags) -> Tags:
        del home
        self._move("store", tags)
        return tags

    def freed(self, tags: Tags) -> None:
        self._move("delete", tags)

    def product(self, into: Tags, left: Tags, right: Tags, mask: Bools | None) -> None:
        for i, j in np.ndindex(into.shape):
            if mask is None or mask[i, j]:
                for t in range(left.shape[1]):
                    self._absorb(int(into[i, j]), int(left[i, t]), int(right[t, j]))

    def streamed(self, into: Tags, left: Tags, right: Tags, how: Streams) -> bool:
        return False

    def accumulated(self, home: Tags, left: Tags, right: Tags, how: Sums) -> bool:
        return False

    def changed(self, tags: Tags, *operands: Tags) -> None:
        """Elementwise work leaves no trace, except dS *= P, which reads a pair word."""
        for other in operands:
            if other.shape == tags.shape:
                for word, factor in zip(tags.ravel(), other.ravel(), strict=True):
                    target, operand = self._labels.get(int(word)), self._labels.get(int(factor))
                    if target is not None and operand is not None and (target[0], operand[0]) == ("dS", "P"):
                        self._step(LoweredStep(name_of(target), (name_of(operand),), last=True))

    def lowered(self, outputs: Sequence[str]) -> Lowered:
        """The graph of all steps, and the moves without loads that nothing uses."""
        steps = tuple(self._steps)
        names = dict.fromkeys(name for step in steps for name in (*step.operands, step.target))
        made = {name_of(label): label[0] for label in self._labels.values()}
        return Lowered(
            nodes=tuple(names),
            steps=steps,
            outputs=tuple(name for name in names if made[name] in outputs),
            moves=tuple(_without_idle_loads(self._moves)),
        )

    def _word(self, label: Label) -> int:
        word = next(self._ids)
        self._labels[word] = label
        return word

    def _absorb(self, into: int, left: int, right: int) -> None:
        first, second = self._labels.get(left), self._labels.get(right)
        if first is None or second is None:
            return
        target, row, column = self._rules[first[0], second[0]]
        label: Label = (target, first[1:][row], second[1:][column])
        assert self._labels.setdefault(into, label) == label, f"{self._labels[into]} absorbs a term of {label}"
        self._step(LoweredStep(name_of(label), (name_of(first), name_of(second))))

    def _step(self, step: LoweredStep) -> None:
        self._steps[step] = None
        self._moves.append(LoweredMove("absorb", step.target, step.operands))

    def _move(self, kind: str, tags: Tags) -> None:
        for word in tags.ravel():
            label = self._labels.get(int(word))
            if label is not None:
                self._moves.append(LoweredMove(kind, name_of(label)))


def _without_idle_loads(moves: Sequence[LoweredMove]) -> list[LoweredMove]:
    """Leave out words that are loaded and deleted without being used: they served statistics only."""
    since: dict[str, int] = {}
    idle: set[int] = set()
    for at, move in enumerate(moves):
        if move.kind == "load":
            since[move.node] = at
        elif move.kind == "delete" and move.node in since:
            idle |= {since.pop(move.node), at}
        else:
            for name in (move.node, *move.operands):
                since.pop(name, None)
    return [move for at, move in enumerate(moves) if at not in idle]
