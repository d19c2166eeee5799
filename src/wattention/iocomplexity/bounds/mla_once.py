"""MLA with every score formed once: V is the first d_v words of every key.

The words form a path Q - K - O; with weights d_k : d_v on the two products a segment does at most (K/3)^(3/2):

    2 sqrt(d_k^2 + d_v^2) E / sqrt M - E - 2 M

Own proof: docs/theory/mla.md. O(log M).
"""

import math

from wattention.iocomplexity.bounds._segments import most_words, three_walls
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, shared_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    pairs = choice_pairs(problem)
    work = pairs * math.hypot(problem.key_dim, problem.value_dim)
    return single_key_rows(problem) * problem.value_dim + most_words(work, three_walls, fast_words) - pairs


BOUND = Bound(
    name="B_MLA",
    statement="2 sqrt(d_k^2 + d_v^2) E/sqrt(M) - E - 2 M",
    direction="forward",
    algorithm_class=AlgorithmClass.ONCE,
    source="own proof, docs/theory/mla.md",
    tight_up_to="1.5 on 227 KB with 576/512",
    values=_values,
    condition=shared_values,
)
