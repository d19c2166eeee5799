"""B: the forward in which every product q_ik k_jk is formed once.

Each pair owns one word (partial S, then S, then P), charged one virtual load when it first appears. Every pair used in
a segment is then among the c pair words, and both products together fit F = sqrt(c)(sqrt(a b) + sqrt(v o)) <=
(K/3)^(3/2):

    2 E (d_k + d_v) / sqrt M - E - 2 M          (dense, d_k = d_v: (4 x - 1) n^2 - 2 M, with x = d / sqrt M)

Own proof: docs/theory/forward.md. O(log M).
"""

from wattention.iocomplexity.bounds._segments import most_words, three_walls
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    pairs = choice_pairs(problem)
    alone = single_key_rows(problem) * problem.value_dim
    return alone + most_words(pairs * (problem.key_dim + problem.value_dim), three_walls, fast_words) - pairs


BOUND = Bound(
    name="B",
    statement="2 E (d_k + d_v)/sqrt(M) - E - 2 M",
    direction="forward",
    algorithm_class=AlgorithmClass.ONCE,
    source="own proof, docs/theory/forward.md",
    tight_up_to="1 + O(sqrt(M)/d) for M << d^2; touches FlashAttention-2 at M = 4 d^2",
    values=_values,
    condition=distinct_values,
)
