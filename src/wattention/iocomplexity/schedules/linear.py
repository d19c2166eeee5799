"""Linear attention: a running state of d_k x d_v sums replaces the pairs.

O_i = phi(q_i) S_i / (phi(q_i) z_i), S_i = sum of phi(k_j) v_j^T and z_i = sum of phi(k_j) over the keys that row i
sees,
phi(x) = elu(x) + 1. Rows see a prefix of the keys (dense or causal), so one state grows and is never stored. If d_k
x d_v sums do
not fit, the features of the values are cut into h blocks, and Q and K are read once for each:
    d_k (f + 1) + a few rows <= M,      words = h d_k (n_q + n_k) + d_v (n_q + n_k),    compulsory for h = 1
Source: Katharopoulos et al. 2020, equations 5 to 7 (dense) and 9 to 12 (causal).
"""

from __future__ import annotations

from itertools import groupby

from wattention.iocomplexity.memory.counts import Count
from wattention.iocomplexity.memory.machine import Machine
from wattention.iocomplexity.memory.tile import Tile
from wattention.iocomplexity.parts.products import feature_blocks
from wattention.iocomplexity.problem.attention import Problem
from wattention.iocomplexity.problem.masks import Band
from wattention.iocomplexity.schedules.base import Facts, FastMemoryTooSmallError, Schedule, Tiles


def refuses(problem: Problem) -> str | None:
    """A state that only grows serves rows that see a prefix of the keys."""
    mask = problem.mask
    prefix = isinstance(mask, Band) and mask.left >= mask.queries + mask.keys
    if problem.values_in_keys:
        return "values lie inside the keys, and features of keys are not values"
    return None if prefix else "a running state serves dense and causal masks only"


def plan(problem: Problem, fast_words: int) -> Tiles:
    """The widest block of features, equalised, and as many rows at a time as are left."""
    for dim in sorted({-(-problem.value_dim // h) for h in range(1, problem.value_dim + 1)}, reverse=True):
        if _room(problem, dim, 1) <= fast_words:
            rows = 1
            most = max(problem.rows, problem.key_tokens)
            while rows < most and _room(problem, dim, min(2 * rows, most)) <= fast_words:
                rows = min(2 * rows, most)
            return {"dim": dim, "rows": rows}
    raise FastMemoryTooSmallError("linear", got=fast_words, least_words=_room(problem, 1, 1))


def _room(problem: Problem, dim: int, rows: int) -> int:
    """Words of the state, and of some keys beside a word of V or some queries with their outputs."""
    w, d_k = problem.widths, problem.key_dim
    keys = min(rows, problem.key_tokens) * d_k * w.inputs + w.inputs
    queries = min(rows, problem.rows) * (d_k * w.inputs + (dim + 1) * w.accumulators)
    return d_k * (dim + 1) * w.accumulators + max(keys, queries)


def predict(problem: Problem, tiles: Tiles) -> Count:
    """Exact count."""
    w, d_k, d_v = problem.widths, problem.key_dim, problem.value_dim
    blocks = -(-d_v // tiles["dim"])
    return Count(
        loads=w.inputs * (blocks * d_k * (problem.rows + problem.k1) + d_v * problem.k1),
        stores=w.inputs * problem.rows * d_v,
        statistics_loads=0,
        statistics_stores=0,
        peak=_room(problem, tiles["dim"], tiles["rows"]),
        multiply_adds=d_k * (d_v * (problem.rows + problem.k1) + blocks * problem.rows),
        exponentials=0,
        scratch_words=0,
    )


def run(machine: Machine, problem: Problem, tiles: Tiles) -> None:
    """Q (n_q, d_k), K (n_k, d_k), V (n_k, d_v) -> O (n_q, d_v)."""
    machine.reserve("O", (problem.rows, problem.value_dim))
    for features in feature_blocks(problem.value_dim, tiles["dim"]):
        width = features.stop - features.start
        with machine.zeros(problem.key_dim, width, name="state") as state, machine.zeros(problem.key_dim) as z:
            seen = first = 0
            for visible, alike in groupby(problem.row_lengths.tolist()):
                keys = slice(seen, max(seen, visible))
                _absorb(machine, problem, tiles, keys=keys, features=features, state=(state, z))
                seen, last = keys.stop, first + len(list(alike))
                for rows in problem.query_blocks.cut(tiles["rows"], slice(first, last)):
                    _answer(machine, rows, features=features, state=(state, z))
                first = last


def _absorb(
    machine: Machine, problem: Problem, tiles: Tiles, *, keys: slice, features: slice, state: tuple[Tile, Tile]
) -> None:
    """Add keys and values to the state."""
    sums, z = state
    for block in problem.key_blocks.cut(tiles["rows"], keys):
        with machine.load("K", block) as k:
            k.to_features()
            sums.add_product(k.T, machine.slow("V", block, features))
            z.add_column_sums(k)


def _answer(machine: Machine, rows: slice, *, features: slice, state: tuple[Tile, Tile]) -> None:
    """Outputs of queries from the state."""
    sums, z = state
    height = rows.stop - rows.start
    with (
        machine.load("Q", rows) as q,
        machine.zeros(height, features.stop - features.start) as out,
        machine.zeros(height) as normaliser,
    ):
        q.to_features()
        out.add_product(q, sums)
        normaliser.add_product(q, z)
        out.divide_rows(normaliser)
        machine.store(out, "O", rows, features)


SCHEDULE = Schedule(
    name="linear",
    title="Linear attention (running state)",
    direction="forward",
    source="Katharopoulos et al. 2020, equations 5 to 12",
    facts=Facts(forms_scores_once=True, materialises=False),
    plan=plan,
    predict=predict,
    run=run,
    refuses=refuses,
    form="linear",
)
