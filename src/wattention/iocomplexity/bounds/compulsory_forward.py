"""C_f: what the forward must read and write whatever it does.

Every input a result depends on is read once and every result is written once. A row with one key has P = 1, so its
query is not needed; K is needed only where a row has a choice. Source: immediate; docs/theory/compulsory.md. O(1).
"""

from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, always
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    del fast_words
    p = problem
    if p.values_in_keys:  # a key seen only by rows of one key serves as a value: d_v of its words
        read = p.q2 * p.key_dim + p.k2 * p.key_dim + (p.k1 - p.k2) * p.value_dim
    else:
        read = p.q2 * p.key_dim + p.k2 * p.key_dim + p.k1 * p.value_dim
    return float(p.copies * p.widths.inputs * (read + p.rows * p.value_dim))


BOUND = Bound(
    name="C_f",
    statement="q2 d_k + k2 d_k + k1 d_v + n_q d_v  (dense: 4 n d)",
    direction="forward",
    algorithm_class=AlgorithmClass.ANY,
    source="immediate, docs/theory/compulsory.md",
    tight_up_to="reached when K and V, or Q and O, fit in fast memory",
    values=_values,
    condition=always,
    widths_exact=True,
)
