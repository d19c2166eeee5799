"""B + E: the forward in which scores are formed once and written to slow memory.

The proof of B charges loads and output stores only; a run that also writes one word of every pair pays E more:

    2 E (d_k + d_v) / sqrt M - 2 M          (dense, d_k = d_v: 4 x n^2 - 2 M, the sum of the bounds of both products)

Own proof: docs/theory/forward.md; each product alone: Smith et al., arXiv 1702.02017. O(log M).
"""

from wattention.iocomplexity.bounds._segments import most_words, three_walls
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    work = choice_pairs(problem) * (problem.key_dim + problem.value_dim)
    return single_key_rows(problem) * problem.value_dim + most_words(work, three_walls, fast_words)


BOUND = Bound(
    name="B+E",
    statement="2 E (d_k + d_v)/sqrt(M) - 2 M",
    direction="forward",
    algorithm_class=AlgorithmClass.STORED,
    source="own proof, docs/theory/forward.md, from the segment argument of Smith et al. (arXiv 1702.02017)",
    tight_up_to="1 + O(sqrt(M)/d) for M << d^2",
    values=_values,
    condition=distinct_values,
)
