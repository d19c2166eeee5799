"""E: the backward in which S and dP are each formed exactly once inside the run, with nothing n x n stored before it.

Two words a pair (S then P; dP then dS), each with a virtual load. With weights sqrt(3)/2 on the products S, dQ, dK and
1 on dP, dV a segment does at most (K/3)^(3/2) weighted multiply-adds, so

    (3 sqrt 3 d_k + 4 d_v) E / sqrt M - 2 E - 2 M          (d_k = d_v: (9.196 x - 2) n^2 - 2 M)

Own proof: docs/theory/backward.md. O(log M).
"""

import math

from wattention.iocomplexity.bounds._segments import most_words, three_walls
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    pairs = choice_pairs(problem)
    work = (1.5 * math.sqrt(3.0) * problem.key_dim + 2 * problem.value_dim) * pairs
    return most_words(work, three_walls, fast_words) - 2 * pairs


BOUND = Bound(
    name="E",
    statement="(3 sqrt(3) d_k + 4 d_v) E/sqrt(M) - 2 E - 2 M",
    direction="backward",
    algorithm_class=AlgorithmClass.ONCE,
    source="own proof, docs/theory/backward.md",
    tight_up_to="1.087 for M << d^2 (10 against 9.196); 1.56 at M = d^2",
    values=_values,
    condition=distinct_values,
)
