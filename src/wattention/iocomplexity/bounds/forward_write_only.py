"""A_at: the forward when partial sums may be added to slow memory without reading them (atomics, reduce-add).

Cut by X transfers of any kind: accumulators number at most M at the end plus the stores, all other words at most M at
the start plus the loads, so a segment touches 2 M + X words and no virtual load is charged:

    4 E d_k d_v / (2 M + d_k^2) - (2 M + d_k^2)   for 2 M >= d_k^2

Own proof: docs/theory/write-only.md. O(log M).
"""

from wattention.iocomplexity.bounds._segments import most_words, streamed_scores
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    work = choice_pairs(problem) * problem.value_dim
    return most_words(work, streamed_scores(problem.key_dim), fast_words, at_start=2.0 * fast_words)


BOUND = Bound(
    name="A_at",
    statement="4 E d_k d_v/(2 M + d_k^2) - (2 M + d_k^2)",
    direction="forward",
    algorithm_class=AlgorithmClass.WRITE_ONLY,
    source="own proof, docs/theory/write-only.md",
    tight_up_to="a factor 2 (no known schedule uses the freedom)",
    values=_values,
    condition=distinct_values,
)
