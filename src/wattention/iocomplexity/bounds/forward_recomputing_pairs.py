"""B': as B, but recomputation of scores is allowed.

One instance of P_ij per pair gets a pair word and its virtual load; all other instances are carried or made from
scratch, and scratch adds (K - c)^2 / (16 d_k) to what a segment can do:

    max over X of X (E (d_k + d_v) / F(M + X) - 1) - E,   F(K) = max over c of sqrt(c)(K - c)/2 + (K - c)^2 / (16 d_k)

Own proof: docs/theory/forward.md. O(log M).
"""

from wattention.iocomplexity.bounds._segments import carried_and_scratch, most_words
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    pairs = choice_pairs(problem)
    work = pairs * (problem.key_dim + problem.value_dim)
    alone = single_key_rows(problem) * problem.value_dim
    return alone + most_words(work, carried_and_scratch(problem.key_dim), fast_words) - pairs


BOUND = Bound(
    name="B'",
    statement="max over X of X (E (d_k + d_v)/F(M + X) - 1) - E,  about (4 x - 2) n^2 for small M",
    direction="forward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/forward.md",
    tight_up_to="1 + O(sqrt(M)/d) for M << d^2; 1.9 near M = d^2",
    values=_values,
    condition=distinct_values,
)
