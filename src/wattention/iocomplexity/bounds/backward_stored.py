"""E + E: the backward that forms S and dP once and writes one word of every pair (P, dP or dS) to slow memory.

The proof of E charges loads and output stores only, so the E words written come on top:

    (3 sqrt 3 d_k + 4 d_v) E / sqrt M - E - 2 M

Own proof: docs/theory/backward.md. O(log M).
"""

import math

from wattention.iocomplexity.bounds._segments import most_words, three_walls
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    pairs = choice_pairs(problem)
    work = (1.5 * math.sqrt(3.0) * problem.key_dim + 2 * problem.value_dim) * pairs
    return most_words(work, three_walls, fast_words) - pairs


BOUND = Bound(
    name="E+E",
    statement="(3 sqrt(3) d_k + 4 d_v) E/sqrt(M) - E - 2 M",
    direction="backward",
    algorithm_class=AlgorithmClass.STORED,
    source="own proof, docs/theory/backward.md",
    tight_up_to="1.087 for M << d^2; 1.35 at M = d^2",
    values=_values,
    condition=distinct_values,
)
