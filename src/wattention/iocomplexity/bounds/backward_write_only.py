"""D_at: the backward when dQ, dK, dV may be accumulated in slow memory without reading them (atomics, reduce-add).

As A_at, with the products and the lemma of D:

    12 E d^2 / (2 M + 4 d^2) - (2 M + 4 d^2)          (d_k = d_v = d)

Own proof: docs/theory/write-only.md. O(log M).
"""

from wattention.iocomplexity.bounds._segments import carried_and_scratch, most_words
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    work = choice_pairs(problem) * (2 * problem.key_dim + problem.value_dim)
    capacity = carried_and_scratch(min(problem.key_dim, problem.value_dim))
    return most_words(work, capacity, fast_words, at_start=2.0 * fast_words)


BOUND = Bound(
    name="D_at",
    statement="4 d' (2 d_k + d_v) E/(2 M + 4 d'^2) - (2 M + 4 d'^2), d' = min(d_k, d_v)",
    direction="backward",
    algorithm_class=AlgorithmClass.WRITE_ONLY,
    source="own proof, docs/theory/write-only.md",
    tight_up_to="a factor 2 (6 x^2 against 12 x^2 of the five-product pass with atomics)",
    values=_values,
    condition=distinct_values,
)
