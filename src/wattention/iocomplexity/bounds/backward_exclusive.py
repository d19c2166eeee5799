"""D*: theorem D with carried and scratch pairs kept apart; recomputation allowed, also when P or S was saved.

A pair whose word a segment carries is not made inside it, so a rectangle of pairs that serves both is counted once.
The ceiling F falls from (K + 4 d^2)^2 / (16 d) to nearly max((K/3)^(3/2), K^2 / (16 d)), and the bound rises to
nearly min(6 d / sqrt M, 12 d^2 / M) words a pair:

    max over X of X (3 d E - F(X)) / F(M + X),  d = min(d_k, d_v)

The first segment starts empty. F is proved by branch and bound (:mod:`._ceilings`). Own proof:
docs/theory/tightness.md. O(log M).
"""

from wattention.iocomplexity.bounds._ceilings import exclusive_backward
from wattention.iocomplexity.bounds._empty_start import most_words_from_empty
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    d = min(problem.key_dim, problem.value_dim)
    alone = single_key_rows(problem) * problem.key_dim
    return alone + most_words_from_empty(3 * d * choice_pairs(problem), exclusive_backward(d), fast_words)


BOUND = Bound(
    name="D*",
    statement="max over X of X (3 d E - F(X))/F(M + X), d = min(d_k, d_v): about min(6 d/sqrt(M), 12 d^2/M) E",
    direction="backward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/tightness.md",
    tight_up_to="14/12 for d^2 << M << n d (seven products), 5/3 for M << d^2",
    values=_values,
    condition=distinct_values,
)
