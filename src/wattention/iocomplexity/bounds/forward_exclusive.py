"""A': theorem A with carried and scratch pairs kept apart, from an empty fast memory; recomputation allowed.

A pair whose word a segment carries is not made inside it, so a rectangle of pairs that serves both is counted once.
The ceiling falls from (K + d^2)^2 / (16 d) to F(K) = max((K/3)^(3/2), K^2 / (16 d)), and for M well above d^2 the
bound rises from 4 d^2 / (M + d^2) to 4 d^2 / M words a pair, which FlashAttention-2 moves:

    max over X of X (d E - F(X)) / F(M + X),  d = min(d_k, d_v)

Own proof: docs/theory/tightness.md. O(log M).
"""

from wattention.iocomplexity.bounds._empty_start import most_words_from_empty
from wattention.iocomplexity.bounds._segments import three_walls
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    d = min(problem.key_dim, problem.value_dim)

    def most(words: float) -> float:
        return max(three_walls(words), (1 + 1e-12) * words**2 / (16 * d))

    alone = single_key_rows(problem) * problem.value_dim
    return alone + most_words_from_empty(d * choice_pairs(problem), most, fast_words)


BOUND = Bound(
    name="A'",
    statement="max over X of X (d E - F(X))/F(M + X), F(K) = max((K/3)^(3/2), K^2/(16 d)): about min(2 x, 4 x^2) E",
    direction="forward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/tightness.md",
    tight_up_to="1.1 for 4 d^2 < M << n d",
    values=_values,
    condition=distinct_values,
)
