"""D: the backward with recomputation allowed, also when P or S was saved by the forward.

The three products with an output (dV, dQ, dK) use carried pairs, at most sqrt(c) T / 2, or scratch pairs, at most
T^2 / (16 d') by the lemma of docs/theory/backward.md, with d' = min(d_k, d_v):

    4 d' (2 d_k + d_v) E / (M + 4 d'^2) - (M + 4 d'^2)          (d_k = d_v: 12 E d^2 / (M + 4 d^2) - (M + 4 d^2))

The number printed takes F exactly and the best integer segment length. Own proof: docs/theory/backward.md. O(log M).
"""

from wattention.iocomplexity.bounds._segments import carried_and_scratch, most_words
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    work = choice_pairs(problem) * (2 * problem.key_dim + problem.value_dim)
    alone = single_key_rows(problem) * problem.key_dim
    return alone + most_words(work, carried_and_scratch(min(problem.key_dim, problem.value_dim)), fast_words)


BOUND = Bound(
    name="D",
    statement="4 d' (2 d_k + d_v) E/(M + 4 d'^2) - (M + 4 d'^2), d' = min(d_k, d_v)",
    direction="backward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/backward.md",
    tight_up_to="14/12 for d^2 << M << n d (seven products); 2.4 near M = d^2",
    values=_values,
    condition=distinct_values,
)
