"""A: the forward with recomputation allowed; the bound that FlashAttention-2's order meets, constant included.

In a segment that touches K words, the products P_ij V_jl use pairs that are carried (at most c, Loomis-Whitney) or
formed from scratch, which needs whole rows of Q and K: F = sqrt(v o)(sqrt c + sqrt(a b) / d_k). With N = E d_v
products,

    M >= d_k^2:  4 E d_k d_v / (M + d_k^2) - (M + d_k^2)        M <= d_k^2:  2 E d_v / sqrt M - 2 M

and the number printed takes the best integer segment length. Own proof: docs/theory/forward.md. O(log M).
"""

from wattention.iocomplexity.bounds._segments import most_words, streamed_scores
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    work = choice_pairs(problem) * problem.value_dim
    alone = single_key_rows(problem) * problem.value_dim
    return alone + most_words(work, streamed_scores(problem.key_dim), fast_words)


BOUND = Bound(
    name="A",
    statement="4 E d_k d_v/(M + d_k^2) - (M + d_k^2) for M >= d_k^2;  2 E d_v/sqrt(M) - 2 M below",
    direction="forward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/forward.md",
    tight_up_to="constant 1 for d^2 << M << n d; a factor 2 for M <= d^2",
    values=_values,
    condition=distinct_values,
)
