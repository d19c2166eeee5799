"""MLA, recomputation allowed: V is the first d_v words of every key, so one load serves both products.

With kappa = d_k (d_k + d_v) / d_v a segment does at most sqrt(c) T / 2 + T^2 / (4 kappa) <= (K + kappa^2/4)^2 / (4
kappa) products P_ij V_jl:

    E d_k (d_k + d_v) / (M + kappa^2/4) - (M + kappa^2/4)

kappa^2/4 is seldom an integer, so the number printed searches the segment length. Own proof: docs/theory/mla.md. O(log
M).
"""

from wattention.iocomplexity.bounds._segments import most_words
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, choice_pairs, shared_values, single_key_rows
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    kappa = problem.key_dim * (problem.key_dim + problem.value_dim) / problem.value_dim

    def capacity(words: float) -> float:
        return (words + kappa**2 / 4) ** 2 / (4 * kappa)

    work = choice_pairs(problem) * problem.value_dim
    return single_key_rows(problem) * problem.value_dim + most_words(work, capacity, fast_words)


BOUND = Bound(
    name="A_MLA",
    statement="E d_k (d_k + d_v)/(M + kappa^2/4) - (M + kappa^2/4), kappa = d_k (d_k + d_v)/d_v",
    direction="forward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/mla.md",
    tight_up_to="weak: 1.28 words a pair against 5.39 moved, on 227 KB with 576/512",
    values=_values,
    condition=shared_values,
)
