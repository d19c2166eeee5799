"""Linear attention must read Q, K, V and write O; that is all it needs once its d_k x d_v state fits.

Elementwise features (as many as d_k), or features given in slow memory. No bound of order n^2 can hold: the scores are
never formed. Source: immediate; docs/theory/linear.md. O(1).
"""

from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    del fast_words
    p = problem
    read = p.q1 * p.key_dim + p.k1 * (p.key_dim + p.value_dim)
    return float(p.copies * p.widths.inputs * (read + p.rows * p.value_dim))


BOUND = Bound(
    name="C_linear",
    statement="q1 d_k + k1 (d_k + d_v) + n_q d_v  (dense: 4 n d)",
    direction="forward",
    algorithm_class=AlgorithmClass.ANY,
    source="immediate, docs/theory/linear.md",
    tight_up_to="reached for M >= d_k d_v + O(d)",
    values=_values,
    condition=distinct_values,
    mechanism="linear",
    widths_exact=True,
)
