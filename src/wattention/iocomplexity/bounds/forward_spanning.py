"""A*: the forward with recomputation allowed, where a score that stays in fast memory is worth no more than one loaded.

Counted are both products. A pair whose S or P is ever loaded pays for every stay of these words, the first included,
because it was stored as well. For a pair whose S and P are never loaded the weights move from S, which may be left
unfinished at the end of a segment for nothing, to P V, whose accumulators pay to arrive and to leave:

    (X - 2) (2 d E / F - 1) - n_q d,  d = min(d_k, d_v): about 3.26 words a pair at M = d^2, where B gives 3 and B' 2.1

F is proved by branch and bound (:mod:`._ceilings`). Own proof: docs/theory/tightness.md. O(1).
"""

from wattention.iocomplexity.bounds._ceilings import SPANNING_FORWARD, spanning_words
from wattention.iocomplexity.bounds.base import AlgorithmClass, Bound, distinct_values
from wattention.iocomplexity.problem.attention import Problem


def _values(problem: Problem, fast_words: int) -> float:
    d = min(problem.key_dim, problem.value_dim)
    return problem.copies * spanning_words(
        SPANNING_FORWARD,
        weight=2,
        pairs=problem.choice_pairs,
        head_dim=d,
        accumulators=problem.rows * d,
        fast_words=fast_words,
    )


BOUND = Bound(
    name="A*",
    statement="(X - 2)(2 d E/F - 1) - n_q d, d = min(d_k, d_v): about 3.26 E at M = d^2",
    direction="forward",
    algorithm_class=AlgorithmClass.RECOMPUTE,
    source="own proof, docs/theory/tightness.md",
    tight_up_to="1.25 near M = d^2",
    values=_values,
    condition=distinct_values,
)
