"""E*: the backward with recomputation allowed, where a pair word that stays in fast memory is worth no more than one
loaded.

Counted are dP, dV, dQ and dK. A pair whose dP or dS is ever loaded pays for every stay of these words, the first
included, because it was stored as well. For a pair whose dP and dS are never loaded the weights move from dP, which
may be left unfinished at the end of a segment for nothing, to dQ and dK, whose accumulators pay to arrive:

    (X - 2) (4 d E / F - 1) - (n_q + 2 n_k) d,  d = min(d_k, d_v): about 6.6 d / sqrt(M) words a pair near M = d^2

F is proved by branch and bound (:mod:`._ceilings`). Own proof: docs/theory/tightness.md. O(1).
"""

from wattention.iocomplexity.bounds._ceilings import SPANNING_BACKWARD, spanning_words
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    d = min(problem.key_dim, problem.value_dim)
    return problem.copies * spanning_words(
        SPANNING_BACKWARD,
        weight=4,
        pairs=problem.choice_pairs,
        head_dim=d,
        accumulators=(problem.rows + 2 * problem.key_tokens) * d,
        fast_words=fast_words,
    )


BOUND = Bound(
    name="E*",
    statement="(X - 2)(4 d E/F - 1) - (n_q + 2 n_k) d, d = min(d_k, d_v): about 7 d/sqrt(M) E for M <= d^2",
    direction="backward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/tightness.md",
    tight_up_to="1.8 for M <= d^2 (10 against 7, less than 10 per cent of it rounding of the search)",
    values=_values,
    condition=distinct_values,
)
