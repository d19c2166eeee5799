"""C_b: what the backward must read and write whatever it does.

dV needs dO of every row with a key; dP, dS, dQ and dK need Q, K and V where a row has a choice; dQ, dK and dV are
written. L, D and O are functions of the inputs, so reading them is not compulsory. A run that starts from a saved P or
S still reads these inputs: dQ = dS K and dK = dS^T Q need Q and K themselves. Source: immediate;
docs/theory/compulsory.md. O(1).
"""

from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    del fast_words
    p = problem
    read = p.q2 * p.key_dim + p.k2 * (p.key_dim + p.value_dim) + p.q1 * p.value_dim
    written = p.rows * p.key_dim + p.key_tokens * (p.key_dim + p.value_dim)
    return float(p.copies * p.widths.inputs * (read + written))


BOUND = Bound(
    name="C_b",
    statement="q2 d_k + k2 (d_k + d_v) + q1 d_v + n_q d_k + n_k (d_k + d_v)  (dense: 7 n d)",
    direction="backward",
    algorithm_class=AlgorithmClass.ANY,
    source="immediate, docs/theory/compulsory.md",
    tight_up_to="reached when Q, dO and dQ, or K, V, dK and dV, fit in fast memory",
    values=_values,
    condition=distinct_values,
    widths_exact=True,
)
